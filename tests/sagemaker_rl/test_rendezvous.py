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


@pytest.fixture
def names() -> HostNameDiscovery:
    return HostNameDiscovery("localhost", find_free_port())


class Meeting:
    """Heads and workers, closed at the end of a test."""

    def __init__(self) -> None:
        self.heads: list[ClusterHead] = []
        self.links: list[JsonConnection] = []
        self._pool = ThreadPoolExecutor(8)

    def head(self, workers: list[str], discovery: Discovery, opened: bool = True) -> ClusterHead:
        head = ClusterHead(workers, discovery, "127.0.0.1", RAY)
        self.heads.append(head)
        if opened:
            head.accept_workers()
        return head

    def joining(
        self,
        name: str,
        discovery: Discovery,
        seconds: float = PATIENCE,
        host: str = "localhost",
        workers: Sequence[str] = (),
    ) -> "Future[_ClusterWorker]":
        """Join in a thread; ``workers`` defaults to ``name`` alone."""
        me = Membership(name, host, "algo-1", "localhost", tuple(workers) or (name,))
        return self._pool.submit(self._join, me, discovery, seconds)

    def _join(self, me: Membership, discovery: Discovery, seconds: float) -> _ClusterWorker:
        joined = join_cluster(me, discovery, seconds)
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
    meeting: Meeting, discovery: Discovery, workers: list[str], shown: list[str]
) -> tuple[ClusterHead, dict[str, _ClusterWorker]]:
    """Form a cluster with all workers ready; ``shown`` receives later lines of the head."""
    head = meeting.head(workers, discovery)
    joined = {name: meeting.joining(name, discovery, workers=workers) for name in workers}
    for one in joined.values():
        one.result().link.send({"ready": True})
    head.wait_for_workers(PATIENCE, shown.append)
    assert head.all_workers_ready
    return head, {name: one.result() for name, one in joined.items()}


def test_workers_receive_the_run_of_the_head(meeting: Meeting, names: HostNameDiscovery) -> None:
    early = meeting.joining("algo-2", names, workers=PAIR)
    until(early.running)
    shown: list[str] = []
    head = meeting.head(PAIR, names)
    late = meeting.joining("algo-3", names, workers=PAIR)
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


def test_a_timeout_names_the_missing_workers(meeting: Meeting, names: HostNameDiscovery) -> None:
    head = meeting.head(PAIR, names)
    meeting.joining("algo-3", names, workers=PAIR).result()
    until(lambda: head._joined)
    with pytest.raises(ClusterError) as error:
        head.wait_for_workers(0.5)
    assert "algo-2" in str(error.value)
    assert re.search("algo-3 .*Ray", str(error.value))


def test_a_late_worker_is_named_and_joins_later(meeting: Meeting, names: HostNameDiscovery) -> None:
    everybody = ["algo-10", *PAIR]
    head = meeting.head(everybody, names)
    late = meeting.joining("algo-10", names, workers=everybody).result().link
    meeting.joining("algo-3", names, workers=everybody).result().link.send({"ready": True})
    until(lambda: len(head._joined) == 2 and head._ready == {"algo-3"})
    shown: list[str] = []
    head.wait_for_workers(0.5, shown.append)
    assert not head.all_workers_ready
    assert re.search(r"algo-2.* algo-10", shown[-1])
    late.send({"ready": True})
    meeting.joining("algo-2", names, workers=everybody).result().link.send({"ready": True})
    until(lambda: head.all_workers_ready)
    until(lambda: ": 3 of 3 " in shown[-1])


def test_a_worker_stops_waiting_for_the_head(meeting: Meeting, names: HostNameDiscovery) -> None:
    with pytest.raises(ClusterError, match=r"algo-1.* 0.3 s.*refused"):
        meeting.joining("algo-2", names, 0.3).result()
    with pytest.raises(ClusterError, match=r"no-such-host.invalid"):
        meeting.joining("algo-2", HostNameDiscovery("no-such-host.invalid"), 0.3).result()


@pytest.mark.parametrize(
    ("name", "host", "message"),
    [
        ("algo-2", "127.0.0.9", r"127\.0\.0\.1 .*127\.0\.0\.9"),
        ("algo-2", "no-such-host.invalid", r"no-such-host\.invalid"),
    ],
)
def test_unknown_addresses_are_rejected(
    meeting: Meeting, names: HostNameDiscovery, name: str, host: str, message: str
) -> None:
    head = meeting.head(["algo-2"], names)
    with pytest.raises(ClusterError, match=message):
        meeting.joining(name, names, 0.2, host).result()
    with pytest.raises(ClusterError) as error:
        head.wait_for_workers(0.1)
    assert f"rejected {name}: " in str(error.value)
    assert re.search(message, str(error.value))


def test_a_second_worker_of_one_name_is_rejected(
    meeting: Meeting, names: HostNameDiscovery
) -> None:
    head = meeting.head(["algo-2"], names)
    meeting.joining("algo-2", names).result()
    until(lambda: head._joined)  # the worker may return before the head has noted it
    with pytest.raises(ClusterError, match="algo-2"):
        meeting.joining("algo-2", names, 0.2).result()


def test_noise_on_the_port_has_no_effect(meeting: Meeting, names: HostNameDiscovery) -> None:
    head = meeting.head(["algo-2"], names)
    noises = (b"", b"GET / HTTP/1.1\r\n\r\n", b"[1]\n", b'{"name": 1}\n', b"x" * 100_000)
    for noise in noises:
        with socket.create_connection(("localhost", names.port)) as connection, suppress(OSError):
            connection.sendall(noise)
    silent = socket.create_connection(("localhost", names.port))
    meeting.joining("algo-2", names).result().link.send({"ready": True})
    head.wait_for_workers(PATIENCE)
    assert head.all_workers_ready
    silent.close()


def test_workers_notice_immediately_when_the_head_ends(
    meeting: Meeting, names: HostNameDiscovery
) -> None:
    head, joined = formed(meeting, names, PAIR, [])
    for link in list(head._joined.values()):
        link.close()
    for one in joined.values():
        with pytest.raises(ConnectionError, match="connection"):
            one.link.receive()


def test_the_head_notices_immediately_when_a_worker_ends(
    meeting: Meeting, names: HostNameDiscovery
) -> None:
    shown: list[str] = []
    head, joined = formed(meeting, names, PAIR, shown)
    joined["algo-3"].link.close()
    until(lambda: "algo-3 was lost: " in shown[-1])
    assert "1 of 2" in shown[-1]
    assert "arrived" not in shown[-1], "the closed socket is noticed, not the silence"
    again = meeting.joining("algo-3", names, workers=PAIR).result()
    again.link.send({"ready": True})
    until(lambda: bool(re.match("algo-3 .*: 2 of 2 ", shown[-1])))
    head.end_run(0, "done")
    for one in (joined["algo-2"], again):
        assert one.link.receive() == {"shutdown": 0, "reason": "done"}


def test_a_worker_lost_before_the_start_may_rejoin(
    meeting: Meeting, names: HostNameDiscovery
) -> None:
    head = meeting.head(PAIR, names)
    meeting.joining("algo-3", names, workers=PAIR).result().link.send({"ready": True})
    meeting.joining("algo-2", names, workers=PAIR).result().link.close()
    until(lambda: head._lost)
    shown: list[str] = []
    head.wait_for_workers(0.1, shown.append)
    assert not head.all_workers_ready
    assert re.search(r"algo-2.* algo-2", shown[-1])
    meeting.joining("algo-2", names, workers=PAIR).result().link.send({"ready": True})
    until(lambda: head.all_workers_ready)
    assert not head._lost


def test_the_head_shows_that_a_worker_leaves(meeting: Meeting, names: HostNameDiscovery) -> None:
    head = meeting.head(["algo-2"], names)
    link = meeting.joining("algo-2", names).result().link
    link.send({"ready": True})
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


def test_two_jobs_meet_through_s3(meeting: Meeting, bucket: S3Discovery) -> None:
    early = meeting.joining("secondary/algo-1", bucket)
    until(early.running)
    head = meeting.head(["secondary/algo-1"], bucket)
    assert early.result().run_id == head.run.run_id
    early.result().link.send({"ready": True})
    head.wait_for_workers(PATIENCE)
    assert head.all_workers_ready
    head.end_run(0, "done")
    with pytest.raises(DiscoveryError, match=r"s3://runs/run-7/cluster.json"):
        bucket.find_head()


def test_announcements_of_earlier_runs_are_ignored(meeting: Meeting, bucket: S3Discovery) -> None:
    nobody = ClusterRun("old", "secret", "127.0.0.1", find_free_port())
    bucket.publish_address(nobody)
    joining = meeting.joining("secondary/algo-1", bucket)
    until(joining.running)
    head = meeting.head(["secondary/algo-1"], bucket)
    assert joining.result().run_id == head.run.run_id


def test_another_run_at_the_announced_address_is_not_joined(
    meeting: Meeting, bucket: S3Discovery
) -> None:
    other = meeting.head(["secondary/algo-1"], bucket)
    for changed in ({"run_id": "old"}, {"token": "guessed"}):
        note = {"run_id": other.run.run_id, "token": other.run.token} | changed
        bucket.publish_address(ClusterRun(**note, address="127.0.0.1", port=other.run.port))
        joining = meeting.joining("secondary/algo-1", bucket, 0.3)
        with pytest.raises(ClusterError, match=r"\bold\b|secret"):
            joining.result()


def secondary(number: int) -> list[str]:
    return [f"secondary/algo-{i + 1}" for i in range(number)]


@pytest.mark.parametrize(("agreed", "are"), [(3, 2), (2, 3)])
def test_a_secondary_job_of_another_size_ends_both_jobs(
    meeting: Meeting, bucket: S3Discovery, agreed: int, are: int
) -> None:
    head = meeting.head(secondary(agreed), bucket)
    message = rf"\b{are} instances.* secondary/algo-1, .*rl_num_instances_secondary"
    last = meeting.joining(secondary(are)[-1], bucket, 2 * PATIENCE, workers=secondary(are))
    with pytest.raises(ClusterError, match=message):
        last.result(PATIENCE)
    with pytest.raises(ClusterError, match=message):
        head.wait_for_workers(PATIENCE)


def test_a_cluster_that_has_ended_accepts_no_worker(
    meeting: Meeting, names: HostNameDiscovery
) -> None:
    head = meeting.head(["algo-2"], names)
    head.end_run(0, "done")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("localhost", names.port), PATIENCE)
    # The same applies to a cluster that ends during the handshake.
    address = ("localhost", names.port)
    head = meeting.head(["algo-2"], names)
    hello = {"name": "algo-2", "host": "localhost", "workers": ["algo-2"]}
    link = JsonConnection(socket.create_connection(address, PATIENCE))
    link.send(hello)
    assert "run_id" in link.receive()
    head.end_run(0, "done")
    link.send({"joined": True})
    with pytest.raises(ConnectionError, match="connection"):
        link.receive()
    link.close()


def test_a_newer_announcement_is_kept(meeting: Meeting, bucket: S3Discovery) -> None:
    old = meeting.head(["secondary/algo-1"], bucket)
    new = meeting.head(["secondary/algo-1"], bucket)
    old.end_run(0, "done")
    assert bucket.find_head() == new.run


def test_bucket_errors_name_the_cause(bucket: S3Discovery) -> None:
    run = ClusterRun("a", "b", "127.0.0.1", 1)
    with pytest.raises(ClusterError, match=r"nowhere.* s3_bucket"):
        S3Discovery("nowhere", "run-7", "us-east-1").publish_address(run)
    bucket._call_s3("put_object", Body=b"[1, 2]")
    with pytest.raises(DiscoveryError, match="s3_prefix"):
        bucket.find_head()


def test_a_worker_does_not_wait_for_a_missing_bucket(meeting: Meeting, bucket: S3Discovery) -> None:
    nowhere = S3Discovery("nowhere", "run-7", "us-east-1")
    joining = meeting.joining("algo-2", nowhere, 2 * PATIENCE)
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


def test_temporary_bucket_errors(meeting: Meeting, bucket: S3Discovery) -> None:
    from botocore.stub import Stubber

    with Stubber(bucket._s3) as stubber:
        stubber.add_client_error("get_object", "SlowDown", "Please reduce your request rate.")
        with pytest.raises(DiscoveryError, match="SlowDown"):
            bucket.find_head()
