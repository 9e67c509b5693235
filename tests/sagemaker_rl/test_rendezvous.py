"""Control connections of a cluster, without Ray and in one process."""

import re
import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import pytest

from sagemaker_rl.cluster import rendezvous
from sagemaker_rl.cluster.membership import (
    ClusterError,
    ClusterRun,
    Discovery,
    DiscoveryError,
    HostNameDiscovery,
    Membership,
    S3Discovery,
)
from sagemaker_rl.cluster.ray_node import find_free_port
from sagemaker_rl.cluster.rendezvous import (
    ClusterHead,
    JsonConnection,
    _ClusterWorker,
    join_cluster,
)
from tests.processes import PATIENCE, until

RAY = "10.0.0.1:6379"
PAIR = ["algo-2", "algo-3"]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "_HEAD_POLL_INTERVAL_S", 0.05)
    monkeypatch.setattr(rendezvous, "_HEARTBEAT_INTERVAL_S", 0.05)


class Meeting:
    """Heads and workers that find each other by ``discovery``, closed at the end of a test."""

    def __init__(self) -> None:
        self.port = find_free_port()
        self.discovery: Discovery = HostNameDiscovery("localhost", self.port)
        self.heads: list[ClusterHead] = []
        self.links: list[JsonConnection] = []
        self._pool = ThreadPoolExecutor(8)

    def head(self, workers: list[str]) -> ClusterHead:
        head = ClusterHead(workers, self.discovery, "127.0.0.1", RAY)
        self.heads.append(head)
        head.accept_workers()
        return head

    def joining(
        self,
        name: str,
        seconds: float = PATIENCE,
        host: str = "localhost",
        workers: Sequence[str] = (),
    ) -> "Future[_ClusterWorker]":
        """Join in a thread; ``workers`` defaults to ``name`` alone."""
        me = Membership(name, host, "algo-1", "localhost", tuple(workers) or (name,))
        return self._pool.submit(self._join, me, seconds)

    def ready(self, name: str, workers: Sequence[str] = ()) -> JsonConnection:
        """Join, report readiness, and return the connection."""
        link = self.joining(name, workers=workers).result().link
        link.send({"ready": True})
        return link

    def _join(self, me: Membership, seconds: float) -> _ClusterWorker:
        joined = join_cluster(me, self.discovery, seconds)
        self.links.append(joined.link)
        return joined

    def close(self) -> None:
        for head in self.heads:
            head.end_run(0, "the test is over")
        for link in self.links:
            link.close()
        self._pool.shutdown()


@pytest.fixture
def meeting() -> Iterator[Meeting]:
    one = Meeting()
    yield one
    one.close()


def formed(
    meeting: Meeting, workers: list[str], shown: list[str]
) -> tuple[ClusterHead, dict[str, JsonConnection]]:
    """Form a cluster with all workers ready; ``shown`` receives later lines of the head."""
    head = meeting.head(workers)
    links = {name: meeting.ready(name, workers) for name in workers}
    head.wait_for_workers(PATIENCE, shown.append)
    assert head.all_workers_ready
    return head, links


def test_workers_receive_the_run_of_the_head(meeting: Meeting) -> None:
    early = meeting.joining("algo-2", workers=PAIR)
    until(early.running)
    shown: list[str] = []
    head = meeting.head(PAIR)
    late = meeting.joining("algo-3", workers=PAIR)
    for one in (early, late):
        joined = one.result()
        assert (joined.run_id, joined.token) == (head.run.run_id, head.run.token)
        assert joined.ray_address == RAY
        joined.link.send({"ready": True})
    head.wait_for_workers(PATIENCE, shown.append)
    assert head.all_workers_ready
    assert shown[-1].startswith("2 of 2 ")
    head.end_run(0, "done")
    for one in (early, late):
        assert one.result().link.receive() == {"shutdown": 0, "reason": "done"}


def test_a_timeout_names_the_missing_workers(meeting: Meeting) -> None:
    head = meeting.head(PAIR)
    meeting.joining("algo-3", workers=PAIR).result()
    until(lambda: head._joined)
    with pytest.raises(ClusterError) as error:
        head.wait_for_workers(0.5)
    assert "algo-2" in str(error.value)
    assert re.search("algo-3 .*Ray", str(error.value))


def test_a_late_worker_is_named_and_joins_later(meeting: Meeting) -> None:
    everybody = ["algo-10", *PAIR]
    head = meeting.head(everybody)
    late = meeting.joining("algo-10", workers=everybody).result().link
    meeting.ready("algo-3", everybody)
    until(lambda: len(head._joined) == 2 and head._ready == {"algo-3"})
    shown: list[str] = []
    head.wait_for_workers(0.5, shown.append)
    assert not head.all_workers_ready
    assert re.search(r"algo-2.* algo-10", shown[-1])
    late.send({"ready": True})
    meeting.ready("algo-2", everybody)
    until(lambda: head.all_workers_ready)
    until(lambda: ": 3 of 3 " in shown[-1])


def test_a_worker_stops_waiting_for_the_head(meeting: Meeting) -> None:
    with pytest.raises(ClusterError, match=r"algo-1.* 0.3 s.*refused"):
        meeting.joining("algo-2", 0.3).result()
    meeting.discovery = HostNameDiscovery("no-such-host.invalid")
    with pytest.raises(ClusterError, match=r"no-such-host.invalid"):
        meeting.joining("algo-2", 0.3).result()


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ("127.0.0.9", r"127\.0\.0\.1 .*127\.0\.0\.9"),
        ("no-such-host.invalid", r"no-such-host\.invalid"),
    ],
)
def test_unknown_addresses_are_rejected(meeting: Meeting, host: str, message: str) -> None:
    head = meeting.head(["algo-2"])
    with pytest.raises(ClusterError, match=message):
        meeting.joining("algo-2", 0.2, host).result()
    with pytest.raises(ClusterError, match=f"rejected algo-2: .*{message}"):
        head.wait_for_workers(0.1)


def test_a_second_worker_of_one_name_is_rejected(meeting: Meeting) -> None:
    head = meeting.head(["algo-2"])
    meeting.joining("algo-2").result()
    until(lambda: head._joined)  # the worker may return before the head has noted it
    with pytest.raises(ClusterError, match="algo-2"):
        meeting.joining("algo-2", 0.2).result()


def test_noise_on_the_port_has_no_effect(meeting: Meeting) -> None:
    head = meeting.head(["algo-2"])
    noises = (b"", b"GET / HTTP/1.1\r\n\r\n", b"[1]\n", b'{"name": 1}\n', b"x" * 100_000)
    for noise in noises:
        with socket.create_connection(("localhost", meeting.port)) as connection, suppress(OSError):
            connection.sendall(noise)
    silent = socket.create_connection(("localhost", meeting.port))
    meeting.ready("algo-2")
    head.wait_for_workers(PATIENCE)
    assert head.all_workers_ready
    silent.close()


def test_workers_notice_immediately_when_the_head_ends(meeting: Meeting) -> None:
    head, links = formed(meeting, PAIR, [])
    for link in list(head._joined.values()):
        link.close()
    for link in links.values():
        with pytest.raises(ConnectionError, match="connection"):
            link.receive()


def test_the_head_notices_immediately_when_a_worker_ends(meeting: Meeting) -> None:
    shown: list[str] = []
    head, links = formed(meeting, PAIR, shown)
    links["algo-3"].close()
    until(lambda: "algo-3 was lost: " in shown[-1])
    assert "1 of 2" in shown[-1]
    assert "arrived" not in shown[-1], "the closed socket is noticed, not the silence"
    again = meeting.ready("algo-3", PAIR)
    until(lambda: bool(re.match("algo-3 .*: 2 of 2 ", shown[-1])))
    head.end_run(0, "done")
    for link in (links["algo-2"], again):
        assert link.receive() == {"shutdown": 0, "reason": "done"}


def test_a_worker_lost_before_the_start_may_rejoin(meeting: Meeting) -> None:
    head = meeting.head(PAIR)
    meeting.ready("algo-3", PAIR)
    meeting.joining("algo-2", workers=PAIR).result().link.close()
    until(lambda: head._lost)
    shown: list[str] = []
    head.wait_for_workers(0.1, shown.append)
    assert not head.all_workers_ready
    assert re.search(r"algo-2.* algo-2", shown[-1])
    meeting.ready("algo-2", PAIR)
    until(lambda: head.all_workers_ready)
    assert not head._lost


def test_the_head_shows_that_a_worker_leaves(meeting: Meeting) -> None:
    head = meeting.head(["algo-2"])
    link = meeting.ready("algo-2")
    shown: list[str] = []
    head.wait_for_workers(PATIENCE, shown.append)
    link.send({"leaving": "a stop was requested"})
    until(lambda: shown[-1] == "algo-2 stops: a stop was requested")


def test_silence_is_a_loss_and_heartbeats_are_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        theirs = socket.create_connection(server.getsockname())
        ours, _ = server.accept()
    listening, beating = JsonConnection(ours, timeout_s=2), JsonConnection(theirs)
    beating.start_heartbeat()
    threading.Timer(3, beating.send, [{"hello": 1}]).start()
    assert listening.receive() == {"hello": 1}
    beating._closed.set()
    with pytest.raises(ConnectionError, match="2 s"):
        listening.receive()
    listening.close()
    beating.close()


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Discovery]:
    moto = pytest.importorskip("moto", reason="needs the extra sagemaker-simulator")
    import boto3

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with moto.mock_aws():
        boto3.client("s3", "us-east-1").create_bucket(Bucket="runs")
        yield S3Discovery("runs", "/run-7/", "us-east-1")


@pytest.fixture
def meeting_in_s3(meeting: Meeting, bucket: S3Discovery) -> Meeting:
    meeting.discovery = bucket
    return meeting


def test_two_jobs_meet_through_s3(meeting_in_s3: Meeting, bucket: S3Discovery) -> None:
    early = meeting_in_s3.joining("secondary/algo-1")
    until(early.running)
    head = meeting_in_s3.head(["secondary/algo-1"])
    assert early.result().run_id == head.run.run_id
    early.result().link.send({"ready": True})
    head.wait_for_workers(PATIENCE)
    assert head.all_workers_ready
    head.end_run(0, "done")
    with pytest.raises(DiscoveryError, match=r"s3://runs/run-7/cluster.json"):
        bucket.find_head()


def test_announcements_of_earlier_runs_are_ignored(
    meeting_in_s3: Meeting, bucket: S3Discovery
) -> None:
    nobody = ClusterRun("old", "secret", "127.0.0.1", find_free_port())
    bucket.publish_address(nobody)
    joining = meeting_in_s3.joining("secondary/algo-1")
    until(joining.running)
    head = meeting_in_s3.head(["secondary/algo-1"])
    assert joining.result().run_id == head.run.run_id


def test_another_run_at_the_announced_address_is_not_joined(
    meeting_in_s3: Meeting, bucket: S3Discovery
) -> None:
    other = meeting_in_s3.head(["secondary/algo-1"])
    for changed in ({"run_id": "old"}, {"token": "guessed"}):
        note = {"run_id": other.run.run_id, "token": other.run.token} | changed
        bucket.publish_address(ClusterRun(**note, address="127.0.0.1", port=other.run.port))
        with pytest.raises(ClusterError, match=r"\bold\b|secret"):
            meeting_in_s3.joining("secondary/algo-1", 0.3).result()


def secondary(number: int) -> list[str]:
    return [f"secondary/algo-{i + 1}" for i in range(number)]


@pytest.mark.parametrize(("agreed", "are"), [(3, 2), (2, 3)])
def test_a_secondary_job_of_another_size_ends_both_jobs(
    meeting_in_s3: Meeting, agreed: int, are: int
) -> None:
    head = meeting_in_s3.head(secondary(agreed))
    message = rf"\b{are} instances.* secondary/algo-1, .*rl_num_instances_secondary"
    last = meeting_in_s3.joining(secondary(are)[-1], 2 * PATIENCE, workers=secondary(are))
    with pytest.raises(ClusterError, match=message):
        last.result(PATIENCE)
    with pytest.raises(ClusterError, match=message):
        head.wait_for_workers(PATIENCE)


def test_a_cluster_that_has_ended_accepts_no_worker(meeting: Meeting) -> None:
    address = ("localhost", meeting.port)
    head = meeting.head(["algo-2"])
    head.end_run(0, "done")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, PATIENCE)
    # The same applies to a cluster that ends during the handshake.
    head = meeting.head(["algo-2"])
    hello = {"name": "algo-2", "host": "localhost", "workers": ["algo-2"]}
    link = JsonConnection(socket.create_connection(address, PATIENCE))
    link.send(hello)
    assert "run_id" in link.receive()
    head.end_run(0, "done")
    link.send({"joined": True})
    with pytest.raises(ConnectionError, match="connection"):
        link.receive()
    link.close()


def test_a_newer_announcement_is_kept(meeting_in_s3: Meeting, bucket: S3Discovery) -> None:
    old, new = (meeting_in_s3.head(["secondary/algo-1"]) for _ in range(2))
    old.end_run(0, "done")
    assert bucket.find_head() == new.run


def test_bucket_errors_name_the_cause(bucket: S3Discovery) -> None:
    run = ClusterRun("a", "b", "127.0.0.1", 1)
    with pytest.raises(ClusterError, match=r"nowhere.* s3_bucket"):
        S3Discovery("nowhere", "run-7", "us-east-1").publish_address(run)
    bucket._call_s3("put_object", Body=b"[1, 2]")
    with pytest.raises(DiscoveryError, match="s3_prefix"):
        bucket.find_head()


@pytest.mark.usefixtures("bucket")
def test_a_worker_does_not_wait_for_a_missing_bucket(meeting: Meeting) -> None:
    meeting.discovery = S3Discovery("nowhere", "run-7", "us-east-1")
    joining = meeting.joining("algo-2", 2 * PATIENCE)
    with pytest.raises(ClusterError, match="nowhere"):
        joining.result(PATIENCE)


@pytest.mark.parametrize(
    ("code", "message"),
    [("AccessDenied", "s3:ListBucket"), ("PermanentRedirect", r"aws_region \(now us-east-1\)")],
)
def test_permanent_bucket_errors(bucket: S3Discovery, code: str, message: str) -> None:
    from botocore.stub import Stubber

    with Stubber(bucket._s3) as stubber:
        stubber.add_client_error("get_object", code)
        with pytest.raises(ClusterError, match=message) as error:
            bucket.find_head()
    assert not isinstance(error.value, DiscoveryError)


def test_temporary_bucket_errors(bucket: S3Discovery) -> None:
    from botocore.stub import Stubber

    with Stubber(bucket._s3) as stubber:
        stubber.add_client_error("get_object", "SlowDown", "Please reduce your request rate.")
        with pytest.raises(DiscoveryError, match="SlowDown"):
            bucket.find_head()
