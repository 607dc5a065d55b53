"""The model of upkeep changes a bucket in the order that is asked of the appliance, too."""

from random import Random

import pytest

from tests.model.upkeep_bounds import BROKEN, SOUND, SOUND_LARGER
from tests.model.upkeep_log import Switch, view_of
from tests.model.upkeep_model import UpkeepModel
from tests.model.upkeep_order import Order
from tests.model.upkeep_world import World

WALKS, STEPS = 60, 120
# What these break is no order of the bucket's steps, but what somebody takes it for.
NO_ORDER = ("claims check", "keeps the oldest", "tombstones", "reader", "take-over")


def walked(model: UpkeepModel, chance: Random) -> list[str]:
    """What is out of order in one walk."""
    order = Order(kept=model.kept)
    order.entry_stored(1, is_first=True)
    world: World = model.initial()
    for _ in range(STEPS):
        following = list(model.steps(world))
        if not following or order.wrong:
            break
        _, after = chance.choice(following)
        if after.log[: len(world.log)] != world.log:
            break  # mode B: a base has cut what nobody was told of
        tell(order, world, after)
        world = after
    return order.wrong


def tell(order: Order, before: World, after: World) -> None:
    for name in after.objects - before.objects:
        order.object_stored(name)
        order.object_read(name)  # one step of the model
    for seq in range(len(before.log) + 1, len(after.log) + 1):
        op, view = after.log[seq - 1], view_of(after.log[:seq])
        order.entry_stored(
            seq,
            is_first=op[0] == "epoch",
            made=[op.made] if isinstance(op, Switch) else (),
            condemned=[op[1]] if op[0] == "condemn" else (),
            tidied=view.tidied,
            in_force=view_of(after.log[: seq - 1]).in_force,
        )
    for name in before.objects - after.objects:
        order.object_deleted(name)
    for seq in before.entries - after.entries:
        order.entry_deleted(seq)
    for snapshot in after.snapshots - before.snapshots:
        order.snapshot_stored(snapshot.seq)
    for snapshot in before.snapshots - after.snapshots:
        order.snapshot_deleted(snapshot.seq, damaged=not snapshot.good)


@pytest.mark.parametrize("title", [*SOUND, *SOUND_LARGER])
def test_every_step_of_the_model_is_in_order(title):
    model = {**SOUND, **SOUND_LARGER}[title]
    for seed in range(WALKS):
        assert walked(model, Random(seed)) == []


@pytest.mark.parametrize("title", [t for t in BROKEN if not any(word in t for word in NO_ORDER)])
def test_a_model_that_breaks_the_order_is_found_out(title):
    assert any(walked(BROKEN[title], Random(seed)) for seed in range(50 * WALKS))
