"""Every limit that is not a setting, with the relations between them asserted.

Settings (settings.py) may lower or raise some of these per installation; the values here are the
outermost bounds and the defaults that settings refer to. Sizes in bytes, times in the unit named.
A protocol with many limits of its own has them in its folder, in a file of the same name.
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
PUSH_BYTES_MAX: Final = 4 * MIB  # of a push protocol; a parsed one takes 50 times as much
POINTER_TOKENS_MAX: Final = 16  # of a JSON Pointer to a record key or timestamp
RECORDS_IN_BATCHES_MAX: Final = 100_000  # of a request that sends record batches: columns
BATCHES_PER_REQUEST_MAX: Final = 10_000  # each takes as long as a record outside of batches
PARSED_AT_ONCE_BYTES: Final = 64 * KIB  # larger bodies are parsed in a child process
PARSED_SOON_BYTES: Final = 1 * MIB  # bodies above this size use a separate child process
PARSE_S_MAX: Final = 30  # time to parse one body

# The Go broker's multipart bodies
PART_HEADERS_BYTES_MAX: Final = 4 * KIB  # per part
PART_SIZES_BYTES_MAX: Final = 16 * RECORDS_PER_REQUEST_MAX  # a uint32 has 10 digits

# The Go broker's buckets
IMPORT_QUIET_MS: Final = 60_000  # an imported bucket must have had no writes for this time
IMPORT_QUIET_MS_MAX: Final = 3_600_000
IMPORT_LISTED_MAX: Final = 100_000_000  # keys of an imported bucket; 16 bytes each
EXPORT_FILE_BYTES: Final = 8 * MIB  # of records per file; the Go broker reads at most 10 MiB
EXPORT_FILE_RECORDS_MAX: Final = 65_536

# Names
NAME_LENGTH_MAX: Final = 128
TOPICS_MAX: Final = 10_000
FORK_DEPTH_MAX: Final = 32  # forks of forks: reading the oldest records visits this many topics
FORKS_PER_TOPIC_MAX: Final = 1_000
API_KEYS_MAX: Final = 10_000
GRANTS_PER_API_KEY_MAX: Final = 100
IDEMPOTENCY_KEY_CHARACTERS_MAX: Final = 255
REMEMBERED_REQUESTS_MAX: Final = 100_000  # per topic; about 23 MB of memory
REMEMBERED_REQUESTS_US: Final = 24 * 3600 * 1_000_000
PRODUCERS_MAX: Final = 100_000  # about 160 MB of memory if each has sent five requests
PRODUCER_IDLE_US: Final = 7 * 24 * 3600 * 1_000_000
PRODUCER_SEQS_REMEMBERED: Final = 5
TRANSACTION_TOPICS_MAX: Final = 100
HELD_BYTES_MAX: Final = REQUEST_BYTES_MAX  # of records that an open transaction gathers in memory
HELD_GROUPS_MAX: Final = 10  # of which it commits offsets
GROUPS_MAX: Final = 100_000
OFFSETS_PER_COMMIT_MAX: Final = 10_000
COMMIT_METADATA_CHARACTERS_MAX: Final = 4_096
COMMIT_BYTES_MAX: Final = 4 * MIB  # body of a commit
COMMITTED_OFFSETS_BYTES_MAX: Final = 64 * MIB  # of all groups: 256 for each offset, and metadata
GROUPS_PER_PAGE_DEFAULT: Final = 100
GROUPS_PER_PAGE_MAX: Final = 500
GROUPS_PER_PAGE_LOOKED_AT: Final = 1_000  # groups, and rows of groups, examined for one page
RESET_PATTERNS_MAX: Final = 1_000
LEASE_TTL_MS_MIN: Final = 1_000
LEASE_TTL_MS_MAX: Final = 3_600_000

# Work queues
QUEUES_MAX: Final = 1_000
QUEUE_TOPICS_MAX: Final = 1_000  # that a queue reads when it is set
QUEUE_TOPICS_READ_MAX: Final = 500_000  # by all queues at work; about 0.5 KB each
DELIVERIES_MAX: Final = 1_000_000  # of all queues: records that are met and not settled
QUEUE_ASIDE_MAX: Final = 100_000  # of one queue: waiting for a retry, or for their record key
DELIVERIES_PER_REQUEST_MAX: Final = 1_000
QUEUE_REASON_CHARACTERS_MAX: Final = 1_000  # why a record was rejected
QUEUE_BURY_RETRY_S: Final = 30.0  # after a dead letter could not be stored
QUEUE_PATTERNS_MAX: Final = 100  # topics and patterns of one queue
QUEUE_LEASE_MS_MIN: Final = 1_000
QUEUE_LEASE_MS_MAX: Final = 12 * 3_600_000
QUEUE_DELAY_MS_MAX: Final = 24 * 3_600_000  # until a failed record is handed out again
QUEUE_DELIVERIES_MAX: Final = 1_000  # of one record
QUEUE_IN_FLIGHT_MAX: Final = 100_000  # of one queue

# Delayed records
DELAY_US_MAX: Final = 366 * 24 * 3600 * 1_000_000
DELAYED_RECORDS_MAX: Final = 20_000_000  # of all topics, with those that have just come due
DELAYS_PAGE: Final = 200  # ranges that a queue reads ahead, by time and by offset
DELAYS_LOOK_S: Final = 30.0  # how often a queue compares what is due with the clock, at least
DELAYS_TIDY_S: Final = 60.0  # how often passed delays are removed

# The window and what waits
WINDOW_BYTES_MAX: Final = 8 * MIB  # a full window closes immediately
PENDING_BYTES_DEFAULT: Final = 64 * MIB  # waiting for the bucket, in all windows
PENDING_CALL_BYTES: Final = 4 * KIB  # of a write beside its bytes, in the application's lane
PENDING_REQUEST_BYTES: Final = 288  # the same in the fast lane; all three are measured
PENDING_RECORD_BYTES: Final = 128  # and for each record outside a batch
READ_BYTES_DEFAULT: Final = 64 * MIB  # read answers in memory
OPERATOR_LINGER_MS: Final = 50
LINGER_MS_MAX: Final = 10_000
LINGER_AUTO_MS_DEFAULT: Final = 28_000  # of linger_max: what fits into 0.50 USD a month
LINGER_AUTO_MS_MAX: Final = 30_000  # of linger_max; of half an ack_timeout, too
PUT_MS_LEFT: Final = 2_000  # that a stretched window leaves to the bucket, of its caller's time
ACK_TIMEOUT_MS_DEFAULT: Final = 30_000
ACK_TIMEOUT_MS_MAX: Final = 600_000
STATE_LAG_ENTRIES_MAX: Final = 1_024  # SQLite may be this many entries behind
STATE_LAG_BYTES_MAX: Final = 32 * MIB  # of tables of contents that wait in memory for SQLite
STATE_PAUSE_S_MAX: Final = 0.05  # between entries, when the lag is near its limit
STATE_GATHER_S: Final = 0.2  # SQLite applies entries in one transaction after this time …
STATE_GATHER_ENTRIES: Final = 256  # … or when this many wait, or when a caller waits

# Reads
FETCH_RECORDS_DEFAULT: Final = 1_000
JSON_SHOWN_BYTES_MAX: Final = 1 * MIB  # of a value that a reader wants as JSON
FETCH_RECORDS_MAX: Final = 100_000
FETCH_BYTES_DEFAULT: Final = 1 * MIB
FETCH_BYTES_MAX: Final = 16 * MIB
WAIT_MS_MAX: Final = 60_000
RANGE_PART_BYTES: Final = 1 * MIB  # read at a time for an answer of any length; a soft limit
RANGE_PART_RECORDS: Final = 2_000  # the same, in records: each may be a batch of its own
RANGE_ROOM_S_MAX: Final = 10  # how long a started answer waits for memory
MANIFEST_SECTIONS_MAX: Final = 10_000  # in one answer; about 1 MiB of JSON
PRESIGN_MS_MAX: Final = 3_600_000  # longest validity of a signed URL
WAITING_READERS_MAX: Final = 10_000
WAKES_PER_TURN: Final = 8  # waiting readers and followers that wake in one turn of the event loop

# Followers: live streams of a topic
FOLLOWERS_MAX: Final = 1_000
FOLLOWER_PART_RECORDS: Final = 1_000  # sent in one part
FOLLOWER_PART_BYTES: Final = 32 * KIB  # the same, in bytes of records; a soft limit
FOLLOWER_STALLED_S_MAX: Final = 10  # a follower that reads nothing for this time is disconnected
FOLLOWER_PING_S: Final = 15
FOLLOWING_BYTES_MAX: Final = 64 * MIB  # being sent to all followers
FOLLOWED_PARTS_BYTES_MAX: Final = 8 * MIB  # encoded once for all followers of a topic
FOLLOWED_TOPICS_MAX: Final = 500  # by one stream; each event has all positions
FOLLOWER_CURSORS_BYTES: Final = 32 * KIB  # of these positions, in one part
PATTERNS_PER_FOLLOWER_MAX: Final = 100
TICKETS_MAX: Final = 10_000  # about 5 MB
TICKET_S: Final = 60

# Streams of the Durable Streams protocol
STREAM_SWEEP_S: Final = 10  # interval of the search for expired streams

# Record keys
KEYS_PER_PAGE_DEFAULT: Final = 100
KEYS_PER_PAGE_MAX: Final = 1_000
KEYS_PAGE_BYTES: Final = 256 * KIB  # of record keys in one page; a soft limit
KEY_HISTORY_BYTES: Final = 1 * MIB  # of records in one page of a history; a soft limit
KEY_HISTORY_LOOKED_AT: Final = 10_000  # steps down a key's history before its offsets are scanned
KEY_FILTER_BYTES_MAX: Final = 16 * MIB  # scanned by one read of a single record key
KEY_INDEX_FRESH_S: Final = 10  # how long `fresh` waits for the index
KEY_INDEX_GATHER_S: Final = 0.02  # collects records to index together
KEY_INDEX_ROUND_BYTES: Final = 16 * MIB  # indexed in one transaction
KEY_INDEX_ROUND_RECORDS: Final = 100_000
KEY_INDEX_ROUND_TOPICS: Final = 1_000
KEY_INDEX_TRIM_ROWS: Final = 10_000  # deleted from the index in one transaction
KEY_INDEX_REST: Final = 1.0  # pause after work while catching up, as a multiple of the work,
KEY_INDEX_REST_BUSY: Final = 4.0  # and while entries are written
KEY_INDEX_RETRY_S: Final = 5
KEY_VIEWS_MAX: Final = 1_000  # views of latest records with open pages
KEY_VIEW_IDLE_S: Final = 600

# HTTP
HTTP_HEADER_BYTES_MAX: Final = 16 * KIB
CONNECTIONS_MAX: Final = 8_000
HTTP_HEADERS_S_MAX: Final = 10  # from the first byte of a request to the end of its headers
HTTP_BODY_S_MAX: Final = 60  # from the end of the headers to the end of the body
HTTP_PACE_S: Final = 15  # interval at which the pace of bodies and answers is checked
HTTP_BODY_BYTES_PER_S_MIN: Final = 1 * KIB  # a slower body is cut off
HTTP_ANSWER_BYTES_PER_S_MIN: Final = 4 * KIB  # a reader that is slower is cut off
HTTP_BEHIND_BYTES: Final = 16 * KIB  # behind a request that is answered; of more, all is reserved
HTTP_UNSENT_BYTES: Final = 4 * KIB  # written but not sent, before we wait for the reader
CONTROL_LINE_BYTES_MAX: Final = 64 * KIB
MANAGE_BYTES_MAX: Final = 256 * KIB  # body of a management request: settings, grants
OAUTH_BYTES_MAX: Final = 16 * KIB  # body of a request for a token
API_KEY_NAME_LENGTH_MAX: Final = 200
API_KEY_DESCRIPTION_LENGTH_MAX: Final = 1_000
API_KEY_OVERLAP_MS_DEFAULT: Final = 24 * 3_600_000
API_KEY_OVERLAP_MS_MAX: Final = 30 * 24 * 3_600_000
APPLY_FILE_BYTES_MAX: Final = 8 * MIB  # seb apply: about 50,000 topics and API keys
GRANT_DECISIONS_KEPT: Final = 50_000  # about 15 MB when full
GRANTS_COMPILED_MAX: Final = 1_000  # API keys with grants prepared for matching
LAST_USED_WRITTEN_EVERY_S: Final = 60
DOCUMENTS_MAX: Final = 1_000  # what protocols keep in the journal, such as inlets
INLET_DELIVERIES_KEPT: Final = 50  # of each inlet, in memory
PUSH_LOOKUPS_MAX: Final = 8  # names that are resolved at one time
PUSH_URL_LENGTH_MAX: Final = 2_000
SIGNATURES_MAX: Final = 10  # of one delivery
SIGNATURE_AGE_S_MAX: Final = 86_400

# Protocols: what settings and the start need of them, also when they are off
CERTIFICATE_LOOK_S: Final = 60.0  # how often a port looks whether its certificate is a new one
MQTT_CONNECTIONS_MAX: Final = 20_000
KAFKA_CONNECTIONS_MAX: Final = 10_000
KAFKA_PARTITIONS_MAX: Final = 256  # of a topic
KAFKA_REBALANCE_DELAY_MS_DEFAULT: Final = 50  # a new group waits so long after each new member
KAFKA_REBALANCE_DELAY_MS_MAX: Final = 30_000

# The admin page
USERS_MAX: Final = 100
PASSWORD_CHARACTERS_MIN: Final = 10
PASSWORD_CHARACTERS_MAX: Final = 1_000
PASSWORDS_WAITING_MAX: Final = 16  # log-ins; one is checked at a time
USER_AGENT_CHARACTERS_MAX: Final = 200
SESSIONS_MAX: Final = 1_000
SESSION_IDLE_S: Final = 30 * 60
SESSION_S_MAX: Final = 12 * 3600
LOGINS_AT_ONCE: Final = 10  # per address, then one every LOGIN_EVERY_S
LOGIN_EVERY_S: Final = 6
LOGIN_STRANGERS: Final = 6  # times that, for addresses that never logged in
LOGINS_WATCHED_MAX: Final = 10_000  # addresses and accounts
FORM_BYTES_MAX: Final = 256 * KIB
FORM_FIELDS_MAX: Final = 1_000
FORM_ANSWERS_KEPT: Final = 64  # per session, for a form that is submitted twice
FORM_ANSWER_S: Final = 60  # short, because the answer may hold a secret
SCANNED_BYTES_MAX: Final = 8 * MIB  # stored bytes that one text search reads
SCANNED_RECORDS_MAX: Final = 50_000
VALUE_SHOWN_BYTES_MAX: Final = 256 * KIB  # of one record, on its page
DOWNLOADED_RECORDS_MAX: Final = 1_000_000
COMPARED_LINES_MAX: Final = 1_000  # of each of two versions of a value
SENT_RECORDS_MAX: Final = 100  # copied between topics on the page, in one request
SENT_BYTES_MAX: Final = 4 * MIB
LIVE_ROWS_AT_ONCE: Final = 50  # of a topic followed in a browser; faster records are skipped
LIVE_PAUSE_S: Final = 0.5
SAMPLE_EVERY_S: Final = 15
LAGS_SAMPLED: Final = 200  # (group, topic) pairs in each sample
LAG_SAMPLES_KEPT: Final = 240  # one hour; about 2 MB
CHECK_S_MAX: Final = 900  # of doctor or fsck, started from the admin page
CHECK_PROBLEMS_SHOWN: Final = 50
SAMPLES_KEPT: Final = 24 * 3600 // SAMPLE_EVERY_S  # 2.3 MB
COARSE_SAMPLE_EVERY_S: Final = 900
COARSE_SAMPLES_KEPT: Final = 30 * 24 * 3600 // COARSE_SAMPLE_EVERY_S  # 1.2 MB
SAMPLES_SAVED_EVERY_S: Final = 60.0  # a few hundred bytes each time, if something happened

# The audit
AUDIT_KEPT: Final = 10_000
AUDIT_JSON_LENGTH_MAX: Final = 4_096
AUDIT_PER_PAGE_DEFAULT: Final = 100
AUDIT_PER_PAGE_MAX: Final = 1_000

# Formats: the most that a decoder allocates
BATCH_BODY_BYTES_MAX: Final = 64 * MIB
BATCH_RECORDS_MAX: Final = 4 * MIB  # 8 bytes of timestamp each fit the body limit
ENTRY_CONTENTS_BYTES_MAX: Final = 16 * MIB
ENTRY_BYTES_MAX: Final = 64 * MIB
ENTRY_HEAD_READ_BYTES: Final = 64 * KIB  # the first read of an entry in a replay
OBJECT_BYTES_MAX: Final = 1024 * MIB  # of an object that is read whole; larger ones are not ours
SMALL_FOLDER_OBJECTS_MAX: Final = 100_000  # snapshots, claims or bases: one a start, or less
LISTED_OBJECTS_MAX: Final = 10_000_000  # of a listing that is kept; about 4 GB of memory
LISTED_ENTRIES_MAX: Final = 1_000_000_000  # and of the journal's, which is not
STORE_ANSWER_BYTES_MAX: Final = 4 * MIB  # a listing or an error of an S3 store
SNAPSHOT_BYTES_MAX: Final = 8 * 1024 * MIB  # decompressed size, on disk
OFFSET_MAX: Final = 2**53 - 1  # JSON numbers stay exact
TIMESTAMP_AHEAD_US_MAX: Final = 24 * 3600 * 1_000_000
CLOCK_JUMP_US_MAX: Final = 10 * 60 * 1_000_000  # clocks that differ by less count as equal

# The index of sections: size of a page; memory holds up to two pages of each topic
INDEX_PAGE_ENTRIES: Final = 1_024
INDEX_PAGE_SECTIONS: Final = 65_536

# Retention and segments
RETENTION_MS_MIN: Final = 1_000
RETENTION_EVERY_S: Final = 10.0  # interval of the check
LOG_CLOCK_FASTEST: Final = 1.1  # speed relative to the monotonic clock, while behind the wall clock
LOG_CLOCK_SLOWEST: Final = 0.5  # the same, while ahead of the wall clock
IDLE_US_BELIEVED: Final = (
    24 * 3600 * 1_000_000
)  # after a longer pause, a start does not trust the wall clock …
START_BELIEVED_S: Final = 3600.0  # … for this time, before it deletes by age
TIME_US_MIN: Final = 1_577_836_800_000_000  # 2020; an earlier Date of a store is ignored
TIME_US_MAX: Final = 7_258_118_400_000_000  # 2200; a later time of any clock is ignored
SEGMENT_BYTES_DEFAULT: Final = 64 * MIB  # the tidier's target, and the bytes that one job reads
SEGMENT_BYTES_MAX: Final = 256 * MIB
SEGMENT_SECTION_BYTES: Final = 1 * MIB  # approximate bytes that one read of a segment fetches
SEGMENT_SECTIONS_MAX: Final = 20_000
OWN_SEGMENT_BYTES_MIN: Final = 4 * MIB  # a topic with fewer bytes shares a packed object
SWITCH_BYTES_MAX: Final = 4 * MIB  # of the operation that activates segments
SECTIONS_PER_SWITCH_MAX: Final = 40_000
TIDY_TRIGGER_BYTES_DEFAULT: Final = 16 * MIB
TIDY_AFTER_MS_DEFAULT: Final = 3_600_000
TIDY_YOUNG_MS: Final = 60_000
TIDY_EVERY_S: Final = 5.0  # interval of the check for due jobs
TIDY_OVERDUE_S: Final = 3600.0  # a job that is due for longer causes a warning
ENTRIES_PER_JOB_MIN: Final = 64  # fewer are not merged, at any age
ENTRIES_PER_JOB_MAX: Final = 10_000
SMALL_OBJECTS_MAX: Final = 16  # this many small objects are merged
SMALL_OBJECTS_AT_ONCE: Final = 1_000  # in one merge, for imported Go files
REPACK_BYTES_MIN: Final = 1 * MIB
GARBAGE_GRACE_MS_DEFAULT: Final = 3_600_000
ENTRIES_REMOVED_AT_ONCE: Final = 1_000
KEYS_PER_ENTRY_MAX: Final = 1_000  # objects marked for deletion or removed by one operation

# Compaction
DIRTY_RATIO_DEFAULT: Final = 0.5
DIRTY_RATIO_MIN: Final = 0.01
DIRTY_RATIO_MAX: Final = 0.99
TOMBSTONE_RETENTION_MS_DEFAULT: Final = 24 * 3_600_000
COMPACTION_SECTIONS_MAX: Final = 20_000  # read by one compaction: about 20 GB
COMPACTION_TOPICS_MAX: Final = 1_000  # small topics that are compacted together
COMPACTION_READ_BYTES: Final = 2 * MIB  # per request
COMPACTION_KEYS_BYTES: Final = 32 * MIB  # record keys in memory; more are sorted on disk
COMPACTION_SORTED_FILES_MAX: Final = 64  # of record keys; more are merged
COMPACTION_FAILED_REST_S: Final = 600.0  # pause after a failed compaction of a topic
EXTERNAL_COMPACTIONS_MAX: Final = 16  # running on clusters
EXTERNAL_COMPACTION_IDLE_S: Final = 3600.0  # without requests, it is forgotten
EXTERNAL_COMPACTION_SECTIONS_MAX: Final = 100_000  # read by one of them: about 100 GB
EXTERNAL_COMPACTION_NAMES_MAX: Final = 10_000  # of segments, also of failed tasks
HANDED_OVER_SEGMENTS_MAX: Final = 512  # that it creates; one entry names all of them
HANDED_OVER_SEGMENT_BYTES_MAX: Final = 1024 * MIB

# Lake tables
TABLE_LAG_MS_MIN: Final = 1_000
TABLE_LAG_MS_DEFAULT: Final = 300_000
TABLE_LAG_MS_STRETCHED: Final = 3_600_000  # the longest default that a budget leads to
TABLE_HOLD_MS_DEFAULT: Final = 24 * 3_600_000
TABLE_SNAPSHOTS_DEFAULT: Final = 100
TABLE_SNAPSHOTS_MAX: Final = 1_000
TABLE_FILE_BYTES_DEFAULT: Final = 64 * MIB
TABLE_FILE_BYTES_MIN: Final = 1 * MIB
TABLE_FILE_BYTES_MAX: Final = 512 * MIB
TABLE_COLUMNS_MAX: Final = 200
TABLE_COLUMNS_OF_MEMBER_MAX: Final = 8  # that take the same member of a value
TABLE_SCHEMAS_MAX: Final = 100  # of a table, one after the other
TABLE_COLUMNS_LENGTH_MAX: Final = 16_000  # characters of the setting
TABLE_METADATA_LOG: Final = 100  # earlier metadata files that the newest one names
TABLE_FILES_MAX: Final = 20_000  # of one table; about 30 MB in memory
TABLES_MAX: Final = 1_000
TABLE_JOB_BYTES: Final = 64 * MIB  # stored bytes of the log that one commit reads at most
TABLE_JOB_INFLATED_BYTES: Final = 1024 * MIB  # of it, decompressed
TABLE_JOB_SECTIONS: Final = 20_000
TABLE_REMOVED_MS_MAX: Final = 7 * 24 * 3_600_000  # for which snapshots keep removed rows
TABLE_MANIFESTS_MAX: Final = 50  # of one snapshot; more are merged
TABLE_MERGED_MIN: Final = 8  # small data files that are merged at once
TABLE_MERGED_MAX: Final = 500
TABLE_MERGED_INFLATED_BYTES: Final = 4096 * MIB  # of rows in them
TABLE_MERGED_AFTER_S: Final = 3_600  # fewer are merged once they are that old
TABLE_EVERY_S: Final = 1.0  # interval of the check for due commits
TABLE_LOOK_EVERY_S: Final = 3_600.0  # at the metadata in the bucket, of a table without commits

# SQL on lake tables
SQL_STATEMENT_BYTES_MAX: Final = 64 * KIB
SQL_QUERIES_MAX: Final = 8  # that run or wait
SQL_AT_ONCE: Final = 2
SQL_S_DEFAULT: Final = 10.0
SQL_S_MAX: Final = 60.0
SQL_ROWS_DEFAULT: Final = 1_000
SQL_ROWS_MAX: Final = 10_000
SQL_ANSWER_BYTES: Final = 4 * MIB  # of columns and rows, as JSON
SQL_CELLS_SHOWN_MAX: Final = 5_000  # of an answer, on the admin page
SQL_MEMORY_BYTES: Final = 256 * MIB  # of DuckDB in one process
SQL_ERROR_CHARACTERS: Final = 2_000  # of what DuckDB says of a statement

# Snapshots
SNAPSHOTS_KEPT: Final = 3
SNAPSHOT_INTERVAL_S_MIN: Final = 60

# Cost
COST_TICK_S: Final = 60.0  # interval at which usage is recorded and the budget checked
COST_WRITTEN_EVERY_S: Final = 300.0
COST_TOPICS_SHOWN: Final = 100  # the most expensive; others are summed in one line

# Metrics
METRICS_OFFSETS_LOOKED_AT: Final = 10_000  # committed offsets, for the lag of groups
METRICS_GROUPS_SHOWN: Final = 50  # with the largest lag

# Background tasks
BACKGROUND_PAUSE_S_MIN: Final = 1.0  # before a failed task restarts; doubled each time
BACKGROUND_PAUSE_S_MAX: Final = 60.0
BACKGROUND_FAILING_S: Final = 180.0  # how long a task counts as failing after an exception

# Checking a bucket
FSCK_PROBLEMS_MAX: Final = 1_000  # listed individually; all are counted
FSCK_READ_BYTES: Final = 16 * MIB  # of objects that are read concurrently, or one larger object
FSCK_READS_AT_ONCE: Final = 16

# Measuring
STORE_LATENCY_MS_MAX: Final = 10_000

assert RECORD_BYTES_DEFAULT <= RECORD_BYTES_MAX <= REQUEST_BYTES_MAX
assert 2 * REQUEST_BYTES_MAX <= PENDING_BYTES_DEFAULT, "a request fits the share of one API key"
assert WINDOW_BYTES_MAX + REQUEST_BYTES_MAX + ENTRY_CONTENTS_BYTES_MAX <= ENTRY_BYTES_MAX
assert HELD_BYTES_MAX <= REQUEST_BYTES_MAX, "a transaction fits an entry"
assert OPERATOR_LINGER_MS < LINGER_MS_MAX <= ACK_TIMEOUT_MS_DEFAULT // 2
assert LINGER_MS_MAX <= LINGER_AUTO_MS_DEFAULT <= LINGER_AUTO_MS_MAX <= ACK_TIMEOUT_MS_MAX // 2
assert WINDOW_BYTES_MAX + 2 * COMMIT_BYTES_MAX <= ENTRY_CONTENTS_BYTES_MAX, "commits fit its table"
assert COMPACTION_SECTIONS_MAX + COMPACTION_TOPICS_MAX <= SECTIONS_PER_SWITCH_MAX
assert SECTIONS_PER_SWITCH_MAX * 100 <= SWITCH_BYTES_MAX <= COMMIT_BYTES_MAX
assert SEGMENT_BYTES_DEFAULT / SEGMENT_SECTION_BYTES + 10_000 < SEGMENT_SECTIONS_MAX
assert GROUPS_PER_PAGE_MAX <= GROUPS_PER_PAGE_LOOKED_AT
assert max(SEGMENT_BYTES_MAX, HANDED_OVER_SEGMENT_BYTES_MAX, ENTRY_BYTES_MAX) <= OBJECT_BYTES_MAX
assert max(REQUEST_BYTES_MAX, BATCH_RECORDS_MAX * 8) <= BATCH_BODY_BYTES_MAX
assert RECORDS_PER_REQUEST_MAX <= RECORDS_IN_BATCHES_MAX <= BATCH_RECORDS_MAX
assert FOLLOWERS_MAX * FOLLOWER_PART_BYTES <= FOLLOWING_BYTES_MAX // 2, "and JSON is longer"
assert FOLLOWED_TOPICS_MAX * 24 <= HTTP_HEADER_BYTES_MAX - 4 * KIB, "a cursor is a header"
assert FOLLOWER_STALLED_S_MAX < HTTP_PACE_S, "a slow follower receives its error"
assert FETCH_BYTES_DEFAULT <= FETCH_BYTES_MAX <= READ_BYTES_DEFAULT // 2, "one API key's share"
assert RANGE_PART_BYTES + RECORD_BYTES_MAX <= READ_BYTES_DEFAULT // 2, "a part of a long answer"
