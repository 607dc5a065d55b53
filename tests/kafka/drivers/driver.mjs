// Drives kafkajs and @confluentinc/kafka-javascript, whose KafkaJS classes have the same methods.
// Where they differ, `ours` decides. argv: library, role, options.
import { createRequire } from "node:module";
import { join } from "node:path";

const [library, role, given] = process.argv.slice(2);
const options = JSON.parse(given);
const require = createRequire(join(process.env.SEB_NODE_MODULES, "x.js"));
const confluent = library === "confluent";
const { Kafka, CompressionTypes, logLevel } = confluent
  ? require("@confluentinc/kafka-javascript").KafkaJS
  : require("kafkajs");

const tell = (event) => process.stdout.write(JSON.stringify(event) + "\n");
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
let stopping = false;
process.stdin.resume().on("end", () => { stopping = true; });

const sasl = { mechanism: "plain", username: "anybody", password: options.password };
const retry = { retries: 1000, initialRetryTime: 50, maxRetryTime: 500 };
const connection = {
  brokers: [options.brokers], sasl, ssl: false, retry, logLevel: logLevel.NOTHING,
  connectionTimeout: 5000,
};
const kafka = new Kafka(confluent ? { kafkaJS: connection } : connection);
const producerOf = (more) => kafka.producer(confluent ? { kafkaJS: more } : more);
const codec = CompressionTypes[options.codec === "none" ? "None" : options.codec?.toUpperCase()];

function consumerOf(more) {
  const group = {
    groupId: options.group ?? `none-${process.pid}`, sessionTimeout: 6000, heartbeatInterval: 500,
    rebalanceTimeout: 10000, readUncommitted: false, retry,
  };
  const ours = { ...group, fromBeginning: true, autoCommit: false, ...more };
  if (confluent && options.instance) ours.groupInstanceId = options.instance;
  return confluent
    ? kafka.consumer({ kafkaJS: ours, rebalance_cb: told })
    : kafka.consumer({ ...group, ...more });
}

// librdkafka's callback: eager assignors give the whole assignment.
function told(error, parts) {
  if (error.code === -175) tell({ assigned: parts.map((p) => [p.topic, p.partition]), ready: true });
}

function tellRecord(topic, partition, message) {
  const from = message.headers?.from;
  tell({ record: [
    topic, partition, Number(message.offset), message.key?.toString() ?? null,
    message.value?.toString() ?? null, (Array.isArray(from) ? from[0] : from)?.toString() ?? null,
  ] });
}

async function subscribe(consumer) {
  await consumer.connect();
  if (!confluent) {
    consumer.on("consumer.group_join", ({ payload }) => {
      const held = Object.entries(payload.memberAssignment);
      tell({ assigned: held.flatMap(([t, ps]) => ps.map((p) => [t, p])), ready: true });
    });
    await consumer.subscribe({ topic: options.topic, fromBeginning: true });
  } else await consumer.subscribe({ topic: options.topic });
}

async function produce() {
  const settings = { idempotent: options.idempotent, retry };
  if (!confluent) settings.maxInFlightRequests = options.idempotent ? 1 : 5;
  else Object.assign(settings, { compression: codec, acks: -1 });
  const producer = producerOf(settings);
  await producer.connect();
  const waiting = [];
  // kafkajs does not keep the order of what it sends at the same time: some at a time instead.
  const each = !confluent && options.idempotent ? 10 : 1;
  for (let at = 0; at < options.count; at += each) {
    const numbers = Array.from({ length: Math.min(each, options.count - at) },
      (_, i) => options.first + at + i);
    const messages = numbers.map((n) => (
      { key: `k${n % 8}`, value: String(n), headers: { from: options.sender } }));
    const request = { topic: options.topic, messages };
    if (!confluent) Object.assign(request, { compression: codec, acks: -1 });
    const sent = producer.send(request).then(
      () => numbers.forEach((n) => tell({ acked: n })),
      (error) => numbers.forEach((n) => tell({ failed: n, error: String(error) })),
    );
    waiting.push(sent);
    if (each > 1) await sent;
    else if (options.pause_ms) await pause(options.pause_ms);
  }
  await Promise.all(waiting);
  await producer.disconnect();
}

async function consume() {
  const consumer = consumerOf({});
  await subscribe(consumer);
  let seen = 0;
  await new Promise((done) => consumer.run({
    eachMessage: async ({ topic, partition, message }) => {
      tellRecord(topic, partition, message);
      if (++seen === options.count) done();
    },
  }));
  await consumer.disconnect();
}

async function member() {
  const consumer = consumerOf({});
  await subscribe(consumer);
  await consumer.run({
    eachMessage: async ({ topic, partition, message }) => {
      tellRecord(topic, partition, message);
      const offset = String(BigInt(message.offset) + 1n);
      try {
        await consumer.commitOffsets([{ topic, partition, offset }]);
      } catch (error) {
        tell({ error: String(error) });
      }
    },
  });
  while (!stopping) await pause(50);
  await consumer.disconnect();
}

async function transform() {
  const consumer = consumerOf({});
  await subscribe(consumer);
  let producer = null;
  let rounds = 0;
  const work = async ({ batch, resolveOffset, heartbeat, isRunning, isStale }) => {
    if (producer === null) {
      producer = producerOf({
        transactionalId: options.transactional_id, idempotent: true, maxInFlightRequests: 1,
        transactionTimeout: 30000, retry: confluent ? retry : { ...retry, retries: 5 },
      });
      await producer.connect();
    }
    const { topic, partition } = batch;
    for (let at = 0; at < batch.messages.length && isRunning() && !isStale(); at += 20) {
      const part = batch.messages.slice(at, at + 20);
      for (const abort of ++rounds % 4 === 0 ? [true, false] : [false]) {
        const transaction = await producer.transaction();
        const messages = part.map(({ key, value }) => ({ key, value }));
        await transaction.send({ topic: options.output, messages });
        const offset = String(BigInt(part.at(-1).offset) + 1n);
        const topics = [{ topic, partitions: [{ partition, offset }] }];
        const sent = confluent ? { consumer, topics } : { consumerGroupId: options.group, topics };
        await transaction.sendOffsets(sent);
        if (abort) await transaction.abort();
        else await transaction.commit();
      }
      tell({ committed: part.map(({ value }) => Number(value)) });
      resolveOffset(part.at(-1).offset);
      await heartbeat();
    }
  };
  await consumer.run({
    eachBatchAutoResolve: false,
    eachBatch: async (given) => {
      try {
        await work(given);
      } catch (error) {
        tell({ retry: String(error) });
        const failed = producer;
        producer = null;
        failed?.disconnect().catch(() => {});
        await rewind(given.batch);
      }
    },
  });
  while (!stopping) await pause(50);
  await consumer.disconnect();

  // What failed may have been committed all the same: the group's offset decides.
  async function rewind({ topic, partition, messages }) {
    const admin = kafka.admin(confluent ? { kafkaJS: {} } : undefined);
    await admin.connect();
    const [{ partitions }] = await admin.fetchOffsets({ groupId: options.group, topics: [topic] });
    await admin.disconnect();
    const offset = Number(partitions.find((one) => one.partition === partition)?.offset ?? -1);
    consumer.seek({ topic, partition, offset: String(Math.max(offset, 0)) });
  }
}

await { produce, consume, member, transform }[role]();
tell({ done: true });
process.exit(0);
