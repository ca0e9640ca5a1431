"""What we rely on in the generated code, and what it must not do to a process that imports it."""

import subprocess
import sys

import pytest

from schemas.generated.milvus.proto import streaming
from schemas.generated.tidemark import v1

IMPORT_ALL = """
import sys
import schemas.generated.milvus.proto.streaming, schemas.generated.tidemark.v1
import schemas.generated.google.rpc, schemas.wire, schemas.properties.keys
print(sorted({"google.protobuf", "grpc"} & set(sys.modules)))
"""

MILVUS = "/milvus.proto.streaming."
OURS = "/tidemark.v1."


def test_nothing_meets_protobufs_descriptor_pool() -> None:
    """pymilvus registers the same file names there, and a second registration is fatal."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL],
        check=True,
        capture_output=True,
        text=True,
        timeout=200,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("service", "paths"),
    [
        (
            streaming.StreamingNodeHandlerServiceBase,
            [
                f"{MILVUS}StreamingNodeHandlerService/{method}"
                for method in ("Consume", "GetReplicateCheckpoint", "Produce")
            ],
        ),
        (
            streaming.StreamingNodeManagerServiceBase,
            [
                f"{MILVUS}StreamingNodeManagerService/{method}"
                for method in ("Assign", "CollectStatus", "Remove")
            ],
        ),
        (
            streaming.StreamingNodeStateServiceBase,
            [f"{MILVUS}StreamingNodeStateService/GetComponentStates"],
        ),
        (
            streaming.StreamingCoordAssignmentServiceBase,
            [
                f"{MILVUS}StreamingCoordAssignmentService/{method}"
                for method in (
                    "AssignmentDiscover",
                    "UpdateReplicateConfiguration",
                    "UpdateWALBalancePolicy",
                )
            ],
        ),
        (
            streaming.StreamingCoordBroadcastServiceBase,
            [f"{MILVUS}StreamingCoordBroadcastService/{method}" for method in ("Ack", "Broadcast")],
        ),
        (
            v1.LogBase,
            [
                f"{OURS}Log/{method}"
                for method in (
                    "Advance",
                    "Append",
                    "Describe",
                    "HasVChannel",
                    "Measure",
                    "Mvcc",
                    "Read",
                    "Seek",
                )
            ],
        ),
        (
            v1.CollectionsBase,
            [
                f"{OURS}Collections/{method}"
                for method in ("AddColumns", "Alter", "Create", "Drop", "Find", "Get", "List")
            ],
        ),
        (
            v1.TimeSyncBase,
            [
                f"{OURS}TimeSync/{method}"
                for method in (
                    "CommitCursor",
                    "Cut",
                    "DropCursor",
                    "GetCursor",
                    "HoldBroadcasts",
                    "JoinBarrier",
                    "LeaveBarrier",
                    "ListBarriers",
                    "ListCursors",
                    "MoveCursor",
                    "OpenCursor",
                    "ReleaseBroadcasts",
                    "ReportTick",
                    "ResetCursor",
                    "WatchBarrier",
                )
            ],
        ),
        (
            v1.CommitsBase,
            [f"{OURS}Commits/{method}" for method in ("Abort", "Commit", "List")],
        ),
        (
            v1.AdminBase,
            [
                f"{OURS}Admin/{method}"
                for method in (
                    "Actors",
                    "Channels",
                    "Health",
                    "Kill",
                    "PauseConsumption",
                    "Streaming",
                    "Traffic",
                )
            ],
        ),
    ],
)
def test_services_have_the_paths_of_the_protocol(
    service: type[streaming.StreamingNodeHandlerServiceBase], paths: list[str]
) -> None:
    assert sorted(service().__mapping__()) == paths
