// Produces, consumes and commits with openapi-fetch and the types that openapi-typescript made.
import createClient from "openapi-fetch"
import type { paths } from "./schema"

declare const process: { env: Record<string, string> }

function same(found: unknown, wanted: unknown) {
    if (JSON.stringify(found) !== JSON.stringify(wanted)) throw new Error(JSON.stringify(found))
}

const seb = createClient<paths, "application/json" | "application/problem+json">({
    baseUrl: process.env.SEB_URL,
    headers: { Authorization: `Bearer ${process.env.SEB_API_KEY}` },
})
const topic = { params: { path: { topic: "ts" } } }
const inGroup = { params: { path: { topic: "ts", group: "g" } } }

const stored = await seb.POST("/v1/topics/{topic}/records", {
    ...topic,
    body: { records: [{ value: { n: 0 }, key: "k0" }, { value: { n: 1 }, key: "k1" }] },
})
same([stored.data?.offset, stored.data?.count], [0, 2])

const defaults = { offset: "earliest", wait: "0", values: "text", fresh: "false" } as const
const read = await seb.GET("/v1/topics/{topic}/records", {
    params: { ...topic.params, query: defaults },
})
same(read.data?.records.map((record) => [record.key, record.value]), [["k0", '{"n":0}'], ["k1", '{"n":1}']])

const before = await seb.GET("/v1/groups/{group}/topics/{topic}/records", inGroup)
same([before.data?.lag_records, before.data?.committed_offset], [2, null])
const committed = await seb.PUT("/v1/groups/{group}/offsets", {
    params: { path: { group: "g" } },
    body: { offsets: { ts: before.data!.next_offset } },
})
same(committed.data?.offsets, { ts: 2 })
const after = await seb.GET("/v1/groups/{group}/topics/{topic}/records", inGroup)
same(after.data?.records, [])

const refused = await seb.GET("/v1/topics/{topic}", { params: { path: { topic: "missing" } } })
same(refused.error?.code, "topic_not_found")
console.log("done")
