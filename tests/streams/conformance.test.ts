import { runConformanceTests } from "@durable-streams/server-conformance-tests"

const baseUrl = process.env.SEB_STREAMS_URL
if (!baseUrl) throw new Error("SEB_STREAMS_URL says where the appliance listens")

runConformanceTests({ baseUrl, longPollTimeoutMs: 20_000, subscriptions: true })
