"""Relations between the public fields of one replica, after every event."""

from appliance.cores.vsr.replica import Replica
from appliance.formats.geometry import Geometry
from appliance.simulation.failure import violated

NAME = "invariants"


def check(index: int, replica: Replica, geometry: Geometry) -> None:
    """Raise unless every relation holds."""
    view, log_view, op = replica.view, replica.log_view, replica.op
    commit_min, commit_max = replica.commit_min, replica.commit_max
    checkpoint = replica.checkpoint_op
    if not (
        log_view <= view
        and checkpoint <= commit_min <= commit_max
        and commit_min <= op
        and op <= geometry.prepare_max(checkpoint)
        and commit_max + geometry.pipeline_max >= op
    ):
        violated(
            NAME,
            f"replica {index}: view {view}, log_view {log_view}, checkpoint "
            f"{checkpoint}, commit {commit_min}..{commit_max}, op {op}",
        )
    if len(replica.pipeline) > geometry.pipeline_max:
        violated(NAME, f"replica {index}: {len(replica.pipeline)} ops in the pipeline")
    if len(replica.request_queue) > geometry.clients_max:
        violated(NAME, f"replica {index}: {len(replica.request_queue)} requests in the queue")
    if replica.normal_primary and commit_max + len(replica.pipeline) != op:
        violated(
            NAME,
            f"replica {index}: a pipeline of {len(replica.pipeline)} between commit "
            f"{commit_max} and op {op}",
        )
