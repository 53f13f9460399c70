"""A primary that is about to stop lets another one lead, before anybody has to miss it.

It asks to leave its own view, as a backup does that hears no heartbeat any more; the others agree
at once with a primary that says so. What it has prepared is in the lists of the view change like
anything else, so nothing is lost, and requests on their way are sent again to the new primary.
"""

from appliance.cores.vsr import votes
from appliance.cores.vsr.heartbeat import HANDS_OVER
from appliance.cores.vsr.replica import Replica
from appliance.formats import envelope as env


def ask(replica: Replica) -> bool:
    """Ask once, on behalf of a primary; whether it has to be asked for again: others are slow, or
    not there.
    """
    if not replica.normal_primary or replica.replica_count == 1:
        return False
    assert not replica.is_standby
    assert replica.replica_count > 1
    replica.mark("primary_hands_over")
    votes.add(replica, replica.index)
    vote = replica.make(env.START_VIEW_CHANGE, view=replica.view, aux=HANDS_OVER)
    replica.send(replica.other_replicas, vote)
    replica.settle()
    return replica.normal_primary
