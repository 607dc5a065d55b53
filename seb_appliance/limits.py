"""Every limit that is not a setting, with the relations between them asserted.

Settings (settings.py) may lower or raise some of these per installation; the values here are the
outermost bounds and the defaults that settings refer to. Sizes in bytes, times in the unit named.
"""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

# Records and requests
RECORD_BYTES_DEFAULT: Final = 1 * MIB
RECORD_BYTES_MAX: Final = 16 * MIB
REQUEST_BYTES_MAX: Final = 16 * MIB  # after inflating
RECORD_KEY_BYTES_MAX: Final = 64 * KIB
RECORD_HEADERS_MAX: Final = 32
RECORD_HEADERS_BYTES_MAX: Final = 16 * KIB
RECORDS_PER_REQUEST_MAX: Final = 10_000
RECORDS_IN_BATCHES_MAX: Final = 100_000  # of a request that sends record batches: columns

PARSED_AT_ONCE_BYTES: Final = 64 * KIB  # larger bodies are read in a child process
PARSED_SOON_BYTES: Final = 1 * MIB  # larger ones in another, for which these do not wait
PARSE_S_MAX: Final = 30  # for one of them

# The Go broker's multipart bodies
PART_HEADERS_BYTES_MAX: Final = 4 * KIB  # of one part
PART_SIZES_BYTES_MAX: Final = 16 * RECORDS_PER_REQUEST_MAX  # a uint32 has 10 digits

# The Go broker's buckets
IMPORT_QUIET_MS: Final = 60_000  # for so long nobody must have written to one that is imported
IMPORT_QUIET_MS_MAX: Final = 3_600_000
EXPORT_FILE_BYTES: Final = 8 * MIB  # of records in a file; that broker reads 10 MiB at most
EXPORT_FILE_RECORDS_MAX: Final = 65_536

# Names
NAME_LENGTH_MAX: Final = 128
TOPICS_MAX: Final = 10_000
FORK_DEPTH_MAX: Final = 32  # forks of forks: a read of the oldest records goes up so many topics
FORKS_PER_TOPIC_MAX: Final = 1_000
API_KEYS_MAX: Final = 10_000
GRANTS_PER_API_KEY_MAX: Final = 100
IDEMPOTENCY_KEY_CHARACTERS_MAX: Final = 255
REMEMBERED_REQUESTS_MAX: Final = 100_000  # a topic each; about 23 MB of memory
REMEMBERED_REQUESTS_US: Final = 24 * 3600 * 1_000_000
PRODUCERS_MAX: Final = 100_000  # about 140 MB of memory, if each has sent five requests
PRODUCER_IDLE_US: Final = 7 * 24 * 3600 * 1_000_000
PRODUCER_SEQS_REMEMBERED: Final = 5
TRANSACTION_TOPICS_MAX: Final = 100
GROUPS_MAX: Final = 100_000
OFFSETS_PER_COMMIT_MAX: Final = 10_000
COMMIT_METADATA_CHARACTERS_MAX: Final = 4_096
COMMIT_BYTES_MAX: Final = 4 * MIB  # the body of a commit
COMMITTED_OFFSETS_BYTES_MAX: Final = 64 * MIB  # of all groups: 256 bytes each, and metadata
GROUPS_PER_PAGE_DEFAULT: Final = 100
GROUPS_PER_PAGE_MAX: Final = 500
GROUPS_PER_PAGE_LOOKED_AT: Final = 1_000  # groups, and rows of them: what a page may cost
RESET_PATTERNS_MAX: Final = 1_000
LEASE_TTL_MS_MIN: Final = 1_000
LEASE_TTL_MS_MAX: Final = 3_600_000

# The window and what waits
WINDOW_BYTES_MAX: Final = 8 * MIB  # a full window closes at once
PENDING_BYTES_DEFAULT: Final = 64 * MIB  # waiting for the bucket, all windows together
# What an admitted write holds beside its bytes, measured: each in the application's lane and in the
# fast lane, and each record that is in no batch.
PENDING_CALL_BYTES: Final = 4 * KIB
PENDING_REQUEST_BYTES: Final = 288
PENDING_RECORD_BYTES: Final = 128
READ_BYTES_DEFAULT: Final = 64 * MIB  # read answers being made or sent
OPERATOR_LINGER_MS: Final = 50
LINGER_MS_MAX: Final = 10_000
ACK_TIMEOUT_MS_DEFAULT: Final = 30_000
ACK_TIMEOUT_MS_MAX: Final = 600_000
STATE_LAG_ENTRIES_MAX: Final = 1_024  # SQLite may follow this many entries behind
STATE_LAG_BYTES_MAX: Final = 32 * MIB  # of tables of contents, which wait in memory for it
STATE_PAUSE_S_MAX: Final = 0.05  # between entries, when it is nearly as far behind as it may be
STATE_GATHER_S: Final = 0.2  # entries gather for so long before SQLite takes them together …
STATE_GATHER_ENTRIES: Final = 256  # … or until there are so many, or somebody waits for it

# Reads
FETCH_RECORDS_DEFAULT: Final = 1_000
FETCH_RECORDS_MAX: Final = 100_000
FETCH_BYTES_DEFAULT: Final = 1 * MIB
FETCH_BYTES_MAX: Final = 16 * MIB
WAIT_MS_MAX: Final = 60_000
RANGE_PART_BYTES: Final = 1 * MIB  # read at a time for an answer of any length; soft, as above
RANGE_PART_RECORDS: Final = 2_000  # the same, in records: each may be a batch of its own
RANGE_ROOM_S_MAX: Final = 10  # how long such an answer waits for room, once it is under way
MANIFEST_SECTIONS_MAX: Final = 10_000  # told by one answer; about 1 MiB of JSON
PRESIGN_MS_MAX: Final = 3_600_000  # how long a signed URL may be good
WAITING_READERS_MAX: Final = 10_000
WAKES_PER_TURN: Final = 8  # of waiting readers, and of followers, in one turn of the event loop

# Followers: live streams of a topic
FOLLOWERS_MAX: Final = 1_000
FOLLOWER_PART_RECORDS: Final = 1_000  # sent at once
FOLLOWER_PART_BYTES: Final = 32 * KIB  # the same, in bytes of records; soft, as FETCH_BYTES
FOLLOWER_STALLED_S_MAX: Final = 10  # one that takes nothing for so long is told so and cut off
FOLLOWER_PING_S: Final = 15
FOLLOWING_BYTES_MAX: Final = 64 * MIB  # being sent to all of them
FOLLOWED_PARTS_BYTES_MAX: Final = 8 * MIB  # encoded once, for all who follow a topic
FOLLOWED_TOPICS_MAX: Final = 500  # by one stream: each of its events names its place in all of them
FOLLOWER_CURSORS_BYTES: Final = 32 * KIB  # of these places, in one part
PATTERNS_PER_FOLLOWER_MAX: Final = 100
TICKETS_MAX: Final = 10_000  # about 5 MB
TICKET_S: Final = 60

# Streams of the Durable Streams protocol
STREAM_PATH_CHARACTERS_MAX: Final = 512  # as sent; the topic's name is what bounds most
STREAM_READ_BYTES: Final = 1 * MIB  # of records, in one answer; soft, as FETCH_BYTES
STREAM_READ_RECORDS: Final = 10_000
STREAM_POLL_S: Final = 20  # how long a long poll waits
STREAM_LIVE_S: Final = 60  # then a live stream ends, so that caches in between let go of it
STREAM_SEQ_CHARACTERS_MAX: Final = 256
STREAM_CONTENT_TYPE_CHARACTERS_MAX: Final = 256
STREAM_SWEEP_S: Final = 10  # how often streams are looked for whose time is up
CURSOR_INTERVAL_S: Final = 20
CURSOR_JITTER_S_MAX: Final = 3_600

# Record keys
KEYS_PER_PAGE_DEFAULT: Final = 100
KEYS_PER_PAGE_MAX: Final = 1_000
KEY_HISTORY_LOOKED_AT: Final = 10_000  # steps down a key's history before its offsets are scanned
KEY_FILTER_BYTES_MAX: Final = 16 * MIB  # what one read of a single record key looks at
KEY_INDEX_FRESH_S: Final = 10  # how long `fresh` waits for the index
KEY_INDEX_GATHER_S: Final = 0.02  # records gather for so long before they are indexed together
KEY_INDEX_ROUND_BYTES: Final = 16 * MIB  # taken into the index in one transaction
KEY_INDEX_ROUND_RECORDS: Final = 100_000
KEY_INDEX_ROUND_TOPICS: Final = 1_000
KEY_INDEX_TRIM_ROWS: Final = 10_000  # deleted from the index in one transaction
KEY_INDEX_REST: Final = 1.0  # while it catches up it rests as long as it worked,
KEY_INDEX_REST_BUSY: Final = 4.0  # and four times as long while entries are written
KEY_INDEX_RETRY_S: Final = 5
KEY_VIEWS_MAX: Final = 1_000  # views of latest records that are being paged through
KEY_VIEW_IDLE_S: Final = 600

# HTTP
HTTP_HEADER_BYTES_MAX: Final = 16 * KIB
CONNECTIONS_MAX: Final = 8_000
HTTP_HEADERS_S_MAX: Final = 10  # from the first byte of a request to the end of its headers
HTTP_BODY_S_MAX: Final = 60  # from there to the end of its body
HTTP_PACE_S: Final = 15  # how often the pace of a body, and of an answer under way, is looked at
HTTP_BODY_BYTES_PER_S_MIN: Final = 1 * KIB  # a body that came slower since then ends
HTTP_ANSWER_BYTES_PER_S_MIN: Final = 4 * KIB  # a reader that took less since then is cut off
HTTP_UNSENT_BYTES: Final = 4 * KIB  # written and not taken, before we wait for a reader
CONTROL_LINE_BYTES_MAX: Final = 64 * KIB
MANAGE_BYTES_MAX: Final = 256 * KIB  # a body that manages something: settings, grants
API_KEY_NAME_LENGTH_MAX: Final = 200
API_KEY_DESCRIPTION_LENGTH_MAX: Final = 1_000
API_KEY_OVERLAP_MS_DEFAULT: Final = 24 * 3_600_000
API_KEY_OVERLAP_MS_MAX: Final = 30 * 24 * 3_600_000
APPLY_FILE_BYTES_MAX: Final = 8 * MIB  # seb apply: some 50,000 topics and API keys
GRANT_DECISIONS_KEPT: Final = 50_000  # about 15 MB when all are in use
GRANTS_COMPILED_MAX: Final = 1_000  # API keys whose grants lie ready to be matched
LAST_USED_WRITTEN_EVERY_S: Final = 60

# The admin page
USERS_MAX: Final = 100
PASSWORD_CHARACTERS_MIN: Final = 10
PASSWORD_CHARACTERS_MAX: Final = 1_000
PASSWORDS_WAITING_MAX: Final = 16  # log-ins at once: one is checked at a time, 19 MiB each
USER_AGENT_CHARACTERS_MAX: Final = 200
SESSIONS_MAX: Final = 1_000
SESSION_IDLE_S: Final = 30 * 60
SESSION_S_MAX: Final = 12 * 3600
LOGINS_AT_ONCE: Final = 10  # of one address; then one each
LOGIN_EVERY_S: Final = 6
LOGIN_STRANGERS: Final = 6  # times that: what addresses share that never logged in to an account
LOGINS_WATCHED_MAX: Final = 10_000  # addresses and accounts
FORM_BYTES_MAX: Final = 256 * KIB
FORM_FIELDS_MAX: Final = 1_000
FORM_ANSWERS_KEPT: Final = 64  # of one session, for who sends a form twice
FORM_ANSWER_S: Final = 60  # it may hold a secret
SCANNED_BYTES_MAX: Final = 8 * MIB  # what one look through records for a text reads, as stored
SCANNED_RECORDS_MAX: Final = 50_000
VALUE_SHOWN_BYTES_MAX: Final = 256 * KIB  # of one record, on its page
DOWNLOADED_RECORDS_MAX: Final = 1_000_000
COMPARED_LINES_MAX: Final = 1_000  # of each of two versions of a value
SENT_RECORDS_MAX: Final = 100  # by hand from one topic to another, at one time
SENT_BYTES_MAX: Final = 4 * MIB
LIVE_ROWS_AT_ONCE: Final = 50  # of a topic followed in a browser; what comes faster is left out
LIVE_PAUSE_S: Final = 0.5
SAMPLE_EVERY_S: Final = 15
LAGS_SAMPLED: Final = 200  # of groups on topics, with each sample
LAG_SAMPLES_KEPT: Final = 240  # an hour; about 2 MB in all
CHECK_S_MAX: Final = 900  # of doctor or fsck, asked for by the admin page
CHECK_PROBLEMS_SHOWN: Final = 50
SAMPLES_KEPT: Final = 24 * 3600 // SAMPLE_EVERY_S

# The audit
AUDIT_KEPT: Final = 10_000
AUDIT_JSON_LENGTH_MAX: Final = 4_096
AUDIT_PER_PAGE_DEFAULT: Final = 100
AUDIT_PER_PAGE_MAX: Final = 1_000

# Formats: what a decoder will at most allocate
BATCH_BODY_BYTES_MAX: Final = 64 * MIB
BATCH_RECORDS_MAX: Final = 4 * MIB  # N; 8 bytes of timestamp each fit the body limit
ENTRY_CONTENTS_BYTES_MAX: Final = 16 * MIB
ENTRY_BYTES_MAX: Final = 64 * MIB
ENTRY_HEAD_READ_BYTES: Final = 64 * KIB  # replay reads this much of an entry first
OBJECT_BYTES_MAX: Final = 1024 * MIB  # read whole; larger ones are not ours
STORE_ANSWER_BYTES_MAX: Final = 4 * MIB  # a listing, or an error, of an S3 store
SNAPSHOT_BYTES_MAX: Final = 8 * 1024 * MIB  # what one may inflate to, on disk
OFFSET_MAX: Final = 2**53 - 1  # JSON numbers stay exact
TIMESTAMP_AHEAD_US_MAX: Final = 24 * 3600 * 1_000_000
CLOCK_JUMP_US_MAX: Final = 10 * 60 * 1_000_000  # clocks that are closer are taken to agree

# The index of sections: a page is made of so much of the journal, and memory holds up to two pages
# of each topic
INDEX_PAGE_ENTRIES: Final = 1_024
INDEX_PAGE_SECTIONS: Final = 65_536

# Retention and segments
RETENTION_MS_MIN: Final = 1_000
RETENTION_EVERY_S: Final = 10.0  # how often it is looked at
LOG_CLOCK_FASTEST: Final = 1.1  # times the monotonic clock, to catch up with the wall clock
LOG_CLOCK_SLOWEST: Final = 0.5  # while it is ahead of the wall clock
IDLE_US_BELIEVED: Final = 24 * 3600 * 1_000_000  # a start after a longer pause is doubted
START_BELIEVED_S: Final = 3600.0  # for so long, in what is deleted
TIME_US_MIN: Final = (
    1_577_836_800_000_000  # 2020; a Date of a store that is earlier is not believed
)
TIME_US_MAX: Final = 7_258_118_400_000_000  # 2200; no clock that tells a later time is
SEGMENT_BYTES_DEFAULT: Final = 64 * MIB  # the tidier's target, and what one job reads
SEGMENT_BYTES_MAX: Final = 256 * MIB
SEGMENT_SECTION_BYTES: Final = 1 * MIB  # what one read of a segment fetches, about
SEGMENT_SECTIONS_MAX: Final = 20_000
OWN_SEGMENT_BYTES_MIN: Final = 4 * MIB  # a topic with less of it shares a packed object
SWITCH_BYTES_MAX: Final = 4 * MIB  # of the operation that puts segments in force
SECTIONS_PER_SWITCH_MAX: Final = 40_000
TIDY_TRIGGER_BYTES_DEFAULT: Final = 16 * MIB
TIDY_AFTER_MS_DEFAULT: Final = 3_600_000
TIDY_YOUNG_MS: Final = 60_000
TIDY_EVERY_S: Final = 5.0  # how often it is asked whether something is due
TIDY_OVERDUE_S: Final = 3600.0  # a job that is due for so long is told as a warning
ENTRIES_PER_JOB_MIN: Final = 64  # fewer are not worth an object, however old
ENTRIES_PER_JOB_MAX: Final = 10_000
SMALL_OBJECTS_MAX: Final = 16  # so many small objects are merged
SMALL_OBJECTS_AT_ONCE: Final = 1_000  # where there are more: files of the Go broker
REPACK_BYTES_MIN: Final = 1 * MIB
GARBAGE_GRACE_MS_DEFAULT: Final = 3_600_000
ENTRIES_REMOVED_AT_ONCE: Final = 1_000
KEYS_PER_ENTRY_MAX: Final = 1_000  # objects condemned or removed by one operation

# Compaction
DIRTY_RATIO_DEFAULT: Final = 0.5
DIRTY_RATIO_MIN: Final = 0.01
DIRTY_RATIO_MAX: Final = 0.99
TOMBSTONE_RETENTION_MS_DEFAULT: Final = 24 * 3_600_000
COMPACTION_SECTIONS_MAX: Final = 20_000  # that one compaction reads: about 20 GB
COMPACTION_TOPICS_MAX: Final = 1_000  # small ones, that are compacted together
COMPACTION_READ_BYTES: Final = 2 * MIB  # one request
COMPACTION_KEYS_BYTES: Final = 32 * MIB  # record keys in memory; more are sorted on disk
COMPACTION_SORTED_FILES_MAX: Final = 64  # of record keys; more are merged
COMPACTION_FAILED_REST_S: Final = 600.0  # before a topic that could not be compacted is tried again
EXTERNAL_COMPACTIONS_MAX: Final = 16  # under way on clusters
EXTERNAL_COMPACTION_IDLE_S: Final = 3600.0  # then one that nobody asks for is forgotten
EXTERNAL_COMPACTION_SECTIONS_MAX: Final = 100_000  # that one goes over: about 100 GB
EXTERNAL_COMPACTION_NAMES_MAX: Final = 10_000  # given for its segments, those of failed tasks too
HANDED_OVER_SEGMENTS_MAX: Final = 512  # that it leaves; one entry names them all
HANDED_OVER_SEGMENT_BYTES_MAX: Final = 1024 * MIB

# Snapshots
SNAPSHOTS_KEPT: Final = 3
SNAPSHOT_INTERVAL_S_MIN: Final = 60

# Cost
COST_TICK_S: Final = 60.0  # how often what was used is noted, and the budget looked at
COST_WRITTEN_EVERY_S: Final = 300.0
COST_TOPICS_SHOWN: Final = 100  # the most expensive; the rest is one line

# Metrics
METRICS_OFFSETS_LOOKED_AT: Final = 10_000  # committed offsets, for the lag of groups
METRICS_GROUPS_SHOWN: Final = 50  # the furthest behind
LOOP_PROBE_S: Final = 1.0

# Background tasks
BACKGROUND_PAUSE_S_MIN: Final = 1.0  # before one that has raised is begun again; doubled each time
BACKGROUND_PAUSE_S_MAX: Final = 60.0
BACKGROUND_FAILING_S: Final = 180.0  # how long one counts as failing after it has raised

# Checking a bucket
FSCK_PROBLEMS_MAX: Final = 1_000  # told one by one; all are counted
FSCK_READ_BYTES: Final = 16 * MIB  # of objects that are read side by side, or one larger one
FSCK_READS_AT_ONCE: Final = 16

# Measuring
STORE_LATENCY_MS_MAX: Final = 10_000
BENCH_CONNECTIONS_MAX: Final = 8_000
BENCH_DURATION_MS_MAX: Final = 3_600_000
BENCH_SAMPLES_MAX: Final = 50_000_000  # latencies kept, four bytes each
BENCH_FOLLOWERS_MAX: Final = 2_000  # connections that wait at a log end
BENCH_RECORDS_PER_READ: Final = 10_000
BENCH_RECORD_BYTES_MIN: Final = 33  # a record says in 32 what it is

assert RECORD_BYTES_DEFAULT <= RECORD_BYTES_MAX <= REQUEST_BYTES_MAX
assert 2 * REQUEST_BYTES_MAX <= PENDING_BYTES_DEFAULT, "a request fits the share of one API key"
assert WINDOW_BYTES_MAX + REQUEST_BYTES_MAX + ENTRY_CONTENTS_BYTES_MAX <= ENTRY_BYTES_MAX
assert OPERATOR_LINGER_MS < LINGER_MS_MAX <= ACK_TIMEOUT_MS_DEFAULT // 2
assert WINDOW_BYTES_MAX + 2 * COMMIT_BYTES_MAX <= ENTRY_CONTENTS_BYTES_MAX, "commits fit its table"
assert COMPACTION_SECTIONS_MAX + COMPACTION_TOPICS_MAX <= SECTIONS_PER_SWITCH_MAX
assert SECTIONS_PER_SWITCH_MAX * 100 <= SWITCH_BYTES_MAX <= COMMIT_BYTES_MAX
assert SEGMENT_BYTES_DEFAULT / SEGMENT_SECTION_BYTES + 10_000 < SEGMENT_SECTIONS_MAX
assert GROUPS_PER_PAGE_MAX <= GROUPS_PER_PAGE_LOOKED_AT
assert max(SEGMENT_BYTES_MAX, HANDED_OVER_SEGMENT_BYTES_MAX, ENTRY_BYTES_MAX) <= OBJECT_BYTES_MAX
assert REQUEST_BYTES_MAX <= BATCH_BODY_BYTES_MAX
assert BATCH_RECORDS_MAX * 8 <= BATCH_BODY_BYTES_MAX
assert RECORDS_PER_REQUEST_MAX <= RECORDS_IN_BATCHES_MAX <= BATCH_RECORDS_MAX
assert FOLLOWERS_MAX * FOLLOWER_PART_BYTES <= FOLLOWING_BYTES_MAX // 2, "and JSON is longer"
assert FOLLOWED_TOPICS_MAX * 24 <= HTTP_HEADER_BYTES_MAX - 4 * KIB, "a cursor is a header"
assert FOLLOWER_STALLED_S_MAX < HTTP_PACE_S, "it has to hear that it was too slow"
assert FETCH_BYTES_DEFAULT <= FETCH_BYTES_MAX <= READ_BYTES_DEFAULT // 2, "one API key's share"
assert RANGE_PART_BYTES + RECORD_BYTES_MAX <= READ_BYTES_DEFAULT // 2, "a part of a long answer"
