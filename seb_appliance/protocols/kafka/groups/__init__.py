"""The coordinator of consumer groups, as the classic protocol of Kafka has it.

It knows no bytes of the wire and no connection. Members live in memory only: after a restart they
are unknown, and join again. Committed offsets are those of `broker/groups/`.
"""
