// Log to Loki's push API with winston: send.js COUNT.
const { setTimeout: sleep } = require('node:timers/promises')
const winston = require('winston')
const LokiTransport = require('winston-loki')

let failed = false
const loki = new LokiTransport({
  host: 'http://127.0.0.1:51313',
  basicAuth: 'loki:API_KEY',
  headers: { 'X-Scope-OrgID': 'logs.loki-node' },
  labels: { service: 'shop' },
  format: winston.format.printf(({ message }) => message),
  interval: 0.5, // seconds
  timeout: 30000,
  onConnectionError: () => { failed = true }
})
loki.batcher.circuitBreakerInterval = 5000 // ms until a failed batch is repeated; by itself, 60 s
const logger = winston.createLogger({ transports: [loki] })

async function main () {
  for (let number = 0; number < Number(process.argv[2]); number++) {
    logger.info(`bottle ${number}`)
    await sleep(50)
  }
  do {
    failed = false
    await loki.flush() // also when a batch has failed
  } while (failed)
  process.exit()
}

main()
