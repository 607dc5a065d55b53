"""The fault matrix: what may go wrong, what must hold then, and which tests or parts of the proof
show it. `tests/tidy/test_proof.py` checks that each of them exists, and that docs/PROOF.md has the
same table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """`shown_by`: `path::test` below tests/, or `part NAME` for a part of the proof. `modes`: both
    fencing modes, where the mode matters."""

    number: int
    fault: str
    expected: str
    shown_by: tuple[str, ...]
    both_modes: bool = False


_FAULTS = "crash/test_bucket_faults.py"
_TWO = "crash/test_two_appliances.py"
_DAMAGE = "crash/test_damage.py"
_IN_EVERY_WAY = f"{_FAULTS}::test_requests_that_fail_in_every_way_lose_and_double_nothing"
_MACHINE = "proof/test_machine.py"

MATRIX = [
    Row(1, "kill -9 at K1 to K20", "serves again; P1 to P18",
        ("part failpoints", "part kills",
         "crash/test_tidying.py::test_a_kill_in_each_step_of_tidying_loses_and_doubles_nothing"),
        both_modes=True),
    Row(2, "the machine and its disk are lost", "the bucket is enough: nothing is lost",
        ("part kills", "part recovery", "part real-stores"), both_modes=True),
    Row(3, "a PUT landed, its answer is lost", "the same bytes again; one copy",
        (_IN_EVERY_WAY, "part faulted-puts"), both_modes=True),
    Row(4, "a PUT never landed", "the same bytes again; one copy",
        (_IN_EVERY_WAY, "part faulted-puts"), both_modes=True),
    Row(5, "a PUT lands after its sender gave up", "one copy; after a take-over: in nobody's log",
        (f"{_FAULTS}::test_a_put_that_lands_after_the_take_over_changes_nothing",
         "unit/storage/test_journal.py::test_a_zombies_entries_after_the_take_over_are_in_nobodys_log"),
        both_modes=True),
    Row(6, "a writer sleeps while another takes over", "it acknowledges nothing more, and exits 75",
        (f"{_TWO}::test_who_was_taken_over_acknowledges_nothing_more_and_nothing_is_lost",
         "part schedules", "part real-stores"), both_modes=True),
    Row(7, "two start at once", "one serves",
        (f"{_TWO}::test_of_two_that_take_over_at_the_same_moment_one_serves",
         f"{_TWO}::test_of_two_that_begin_a_bucket_at_the_same_moment_one_serves"),
        both_modes=True),
    Row(8, "412 for the writer's own object", "compared, and treated as stored",
        (_IN_EVERY_WAY,
         "unit/storage/test_journal.py::test_412_for_our_own_lost_attempt_is_success"),
        both_modes=True),
    Row(9, "bursts of 500, 503, 504, 429", "no acknowledgement; soon after, progress",
        (_IN_EVERY_WAY, f"{_FAULTS}::test_five_seconds_after_the_bucket_is_back_there_is_progress"),
        both_modes=True),
    Row(10, "the bucket is unavailable for long", "bounded memory; reads continue; nothing is lost",
        ("part store-away",)),
    Row(11, "the bucket hangs", "504 outcome_unknown at the caller's deadline",
        (f"{_FAULTS}::test_a_caller_is_told_by_his_deadline_that_nobody_knows",
         "part stalled-producers")),
    Row(12, "credentials are revoked, or the bucket is deleted", "not ready; reads continue; "
        "writes resume when it is back",
        (f"{_FAULTS}::test_denied_credentials_turn_readiness_red_and_leave_reads",
         f"{_MACHINE}::test_a_bad_hour_of_a_machine_loses_and_doubles_nothing")),
    Row(13, "an answer is damaged in transit", "fetched again; never served",
        (f"{_DAMAGE}::test_an_answer_damaged_on_its_way_is_fetched_again",)),
    Row(14, "a file of the cache is damaged, truncated or missing", "fetched again",
        (f"{_DAMAGE}::test_a_damaged_file_of_the_cache_is_fetched_again",)),
    Row(15, "an object of the bucket is damaged or missing",
        "reported with its offsets; other topics are served",
        (f"{_DAMAGE}::test_a_damaged_object_of_the_bucket_is_told_by_its_offsets_and_harms_no_other",)),
    Row(16, "SQLite's file is damaged, truncated, emptied, or lost its log", "moved aside, rebuilt",
        (f"{_DAMAGE}::test_a_damaged_state_file_is_rebuilt_from_the_bucket",
         "unit/state/test_damage.py::test_flipped_bits_anywhere_never_make_another_state")),
    Row(17, "SQLite gets ENOSPC or EIO", "acknowledged records stay acknowledged; no partial state",
        (f"{_MACHINE}::test_errors_under_sqlite_lose_nothing_that_was_acknowledged",
         "unit/state/test_damage.py::test_a_write_that_the_disk_refuses_changes_nothing_and_may_be_repeated")),
    Row(18, "the cache's disk is full", "it continues to acknowledge",
        ("unit/storage/test_section_source.py::test_a_disk_that_refuses_costs_the_cache_and_nothing_else",
         f"{_MACHINE}::test_a_full_disk_loses_nothing_that_was_acknowledged")),
    Row(19, "the state's disk is full",
        "nothing acknowledged is lost; it starts again when there is space",
        (f"{_MACHINE}::test_a_full_disk_loses_nothing_that_was_acknowledged",)),
    Row(20, "the limit of open files is reached", "open connections are served",
        ("server/test_open_files.py::test_too_many_connections_end_neither_the_process_nor_those_that_are_in",)),
    Row(21, "memory allocation fails", "no worse than a kill",
        (f"{_MACHINE}::test_a_bad_hour_of_a_machine_loses_and_doubles_nothing",)),
    Row(22, "the clock goes back an hour, or forward ten years", "offsets continue, times stay "
        "right, nothing is deleted by age",
        (f"{_MACHINE}::test_a_clock_that_jumps_moves_no_offset_and_no_record_back",
         "unit/test_tidier.py::test_after_a_jump_of_the_clock_nothing_goes_by_age")),
    Row(23, "SIGTERM under load", "waiting callers are answered; exit 0",
        ("server/test_stop.py::test_a_stop_under_load_loses_nothing_and_exits_0",),
        both_modes=True),
    Row(24, "SIGTERM, then kill -9", "as a kill",
        ("server/test_stop.py::test_a_kill_in_the_middle_of_a_stop_loses_nothing",)),
    Row(25, "a client disconnects before its answer", "its resources are released",
        ("http/test_raw_http.py::test_a_client_that_leaves_in_its_body_frees_what_it_held",
         "http/test_waiting_reads.py::test_a_reader_that_leaves_frees_its_place")),
    Row(26, "5,000 stalled producers", "at most 300 MB; other clients are not disturbed",
        ("part stalled-producers",)),
    Row(27, "slow consumers, thousands of long polls", "bounded; the slow one is disconnected",
        ("http/test_raw_http.py::test_a_reader_that_takes_nothing_is_cut_off",
         "server/test_live.py::test_hundreds_that_wait_cost_nothing_while_nothing_happens")),
    Row(28, "headers and bodies that trickle", "timed out",
        ("http/test_raw_http.py::test_headers_that_do_not_end_time_out",
         "http/test_raw_http.py::test_a_body_that_trickles_times_out_and_frees_its_reservation")),
    Row(29, "LIST is stale or incomplete", "the store is refused at start",
        ("unit/storage/test_store_test.py::test_one_missing_object_in_a_list_makes_mode_b_impossible",
         "unit/storage/test_start_claimed.py::test_a_claim_that_list_does_not_show_makes_the_store_unusable")),
    Row(30, "a kill amid retention or compaction", "no reader misses a record; it is done again",
        ("crash/test_tidying.py::test_a_kill_in_each_step_of_tidying_loses_and_doubles_nothing",
         "crash/test_compaction.py::test_a_kill_in_each_step_of_a_compaction_loses_and_doubles_nothing"),
        both_modes=True),
    Row(31, "an old release on new data, and back", "refused or migrated; never truncated",
        ("upgrade/test_stored.py::test_what_a_later_release_wrote_is_refused_with_a_hint",
         "upgrade/test_migrations.py::test_after_going_back_a_release_older_snapshots_are_begun_from")),
    Row(32, "restored into a bucket in use, or the wrong one", "refused",
        ("unit/storage/test_opening.py::test_the_local_state_of_another_bucket_is_refused",
         "unit/test_restoring.py::test_a_bucket_that_holds_something_is_no_target")),
    Row(33, "the store's port is closed, its name does not resolve, its certificate expired",
        "as unavailable",
        (f"{_MACHINE}::test_a_bad_hour_of_a_machine_loses_and_doubles_nothing",
         "unit/storage/test_object_store_s3.py::test_a_store_that_is_not_there_is_uncertain",
         "part real-stores")),
    Row(34, "the process is stopped for five seconds", "fencing does not depend on time",
        (f"{_MACHINE}::test_a_bad_hour_of_a_machine_loses_and_doubles_nothing",
         f"{_TWO}::test_who_was_taken_over_acknowledges_nothing_more_and_nothing_is_lost")),
]  # fmt: skip


def as_markdown() -> str:
    """The rows as docs/PROOF.md has them."""
    lines = ["| # | fault | what must hold | shown by |", "|---|---|---|---|"]
    for row in MATRIX:
        shown = ", ".join(f"`{name.split('::')[-1]}`" for name in row.shown_by)
        modes = " (A and B)" if row.both_modes else ""
        lines.append(f"| {row.number} | {row.fault}{modes} | {row.expected} | {shown} |")
    return "\n".join(lines) + "\n"
