// What the protocol's TypeScript client does with an appliance; test_clients.py runs it.
import assert from "node:assert/strict"
import { DurableStream, IdempotentProducer, stream } from "@durable-streams/client"

const url = `${process.env.SEB_STREAMS_URL}/v1/stream/clients/typescript`
const headers = { Authorization: `Bearer ${process.env.SEB_API_KEY}` }

const handle = await DurableStream.create({ url, headers, contentType: "application/json" })
await handle.append(JSON.stringify({ n: 0 }))
const producer = new IdempotentProducer(handle, "typescript", { autoClaim: true })
for (let n = 1; n <= 100; n++) producer.append(JSON.stringify({ n }))
await producer.flush()

const caughtUp = await stream({ url, headers, live: false })
const items = await caughtUp.json()
assert.deepEqual(items.map(({ n }) => n), Array.from({ length: 101 }, (_, n) => n))

for (const live of ["sse", "long-poll"]) {
  const following = await stream({ url, headers, live, offset: caughtUp.offset })
  const came = new Promise((resolve) => {
    const leave = following.subscribeJson(async ({ items }) => {
      if (items.length) {
        leave()
        resolve(items[0])
      }
    })
  })
  await handle.append(JSON.stringify({ live: "here" }))
  assert.deepEqual(await came, { live: "here" })
}

assert.equal((await handle.head()).exists, true)
await producer.close()
console.log("done")
process.exit(0)
