"""The Python client: producers, consumers and an admin, for threads and for asyncio."""

from seb_appliance.client.administering import AsyncAdmin
from seb_appliance.client.batching import Delivery
from seb_appliance.client.blocking import Admin, Consumer, Producer
from seb_appliance.client.consuming import AsyncConsumer
from seb_appliance.client.failures import (
    ApplianceError,
    ClientError,
    ClosedError,
    ConfigurationError,
    LeaseLostError,
    TopicReplacedError,
)
from seb_appliance.client.producing import AsyncProducer
from seb_appliance.client.reading import RecordKey
from seb_appliance.client.records import BadRecordError, Record, RecordBatch, UnreadableAnswerError
from seb_appliance.client.transacting import Transaction
from seb_appliance.client.working import AsyncWorker, Reject, RetryLater, Worker

__all__ = [
    "Admin",
    "ApplianceError",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncWorker",
    "BadRecordError",
    "ClientError",
    "ClosedError",
    "ConfigurationError",
    "Consumer",
    "Delivery",
    "LeaseLostError",
    "Producer",
    "Record",
    "RecordBatch",
    "RecordKey",
    "Reject",
    "RetryLater",
    "TopicReplacedError",
    "Transaction",
    "UnreadableAnswerError",
    "Worker",
]
