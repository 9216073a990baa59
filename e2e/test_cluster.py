# SPDX-License-Identifier: Apache-2.0
"""The cluster harness itself: it starts, survives, stops, and leaves the machine as it was.

Everything here runs on clusters of its own name, beside the one that the other tests use.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest

from conftest import CLUSTER, ROOT, run, unavailable

BUILD = pathlib.Path(os.environ.get("BUILD", ROOT / "build")).absolute()
IMAGE = BUILD / "image/dynamo-dev.tar"
NAME = f"commutator-test-{os.getpid()}"
RECORD = pathlib.Path("/run/commutator") / NAME
# These change by themselves, or count what happens anywhere on the machine.
VOLATILE = re.compile(r"^(fs\.(dentry|file|inode|aio|quota|dquot)|kernel\.(ns_last_pid|random|pty\.nr|perf|usermodehelper)"
                      r"|net\.netfilter\.nf_conntrack_count|vm\.stat_refresh)")


def eventually(condition, limit=60, what="condition"):
    """Waits until the condition holds and returns its value."""
    deadline = time.monotonic() + limit
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {limit} s: {what}"
        time.sleep(0.05)
    return value


class Harness:
    """The harness with a cluster name and a state directory of its own."""

    def __init__(self, state):
        self.state = state
        self.env = {**os.environ, "KUBE_NAME": NAME, "KUBE_STATE": str(state)}
        self.env.pop("KUBECONFIG", None)

    def __call__(self, *words, check=True, **options):
        return run(CLUSTER, *words, check=check, env=self.env, **options)

    def start(self, *words):
        return subprocess.Popen([CLUSTER, *words], env=self.env, stderr=subprocess.DEVNULL)

    def kubectl(self, *words, **options):
        return self("k", *words, **options).stdout

    def get(self, *words):
        return json.loads(self.kubectl("get", *words, "-o", "json"))

    def pid1(self):
        return int((self.state / "init").read_text().split()[0])

    def gpus(self):
        return self.get("node", NAME)["status"]["allocatable"].get("nvidia.com/gpu")


def machine():
    """What a cluster must leave alone: the machine's mounts, network, settings and cgroups."""
    def at_home(*words):
        return run("nsenter", "--net=/proc/1/ns/net", *words, check=False).stdout.splitlines()
    return {
        "mounts": pathlib.Path("/proc/self/mountinfo").read_text().splitlines(),
        "addresses": at_home("ip", "-br", "address"),
        "routes": at_home("ip", "route", "show", "table", "all"),
        "rules": at_home("nft", "list", "ruleset"),
        "sysctls": sorted(line for line in at_home("busybox", "sysctl", "-a") if not VOLATILE.match(line)),
    }


def leftovers(state):
    """Processes, cgroups and files of the test's cluster."""
    found = [str(path) for path in pathlib.Path("/sys/fs/cgroup").glob(f"**/{NAME}")]
    found += [str(path) for path in (RECORD, state) if path.exists() or path.is_symlink()]
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if str(state).encode() in (process / "cmdline").read_bytes():
                found.append((process / "cmdline").read_bytes().decode())
        except OSError:
            pass
    return found


@pytest.fixture
def harness(tmp_path):
    """A harness that nothing has run yet, on a machine that can run a cluster."""
    able = run(CLUSTER, "check", check=False)
    if able.returncode != 0:
        unavailable(f"no cluster can run here: {able.stderr}")
    harness = Harness(tmp_path / "state")
    yield harness
    harness("down")


@pytest.mark.machine
def test_start_and_stop_twice_leaves_the_machine_as_it_was(harness):
    before = machine()
    for _ in range(2):
        harness("up")
        assert "runs as pid" in harness("status").stdout
        first = harness.pid1()
        assert "runs already" in harness("up").stderr
        assert harness.pid1() == first
        assert machine() == before
        harness("down")
        harness("down")
        assert "is down" in harness("status", check=False).stdout
        assert leftovers(harness.state) == []
    assert machine() == before


@pytest.mark.machine
def test_starts_again_after_its_pid_1_was_killed(harness):
    harness("up")
    harness.kubectl("create", "namespace", "old")
    killed = harness.pid1()
    os.kill(killed, signal.SIGKILL)
    eventually(lambda: harness("status", check=False).stdout.count("crashed"), what="status says so")
    harness("up")
    assert harness.pid1() != killed
    assert harness("k", "get", "namespace", "old", check=False).returncode != 0
    harness("down")
    assert leftovers(harness.state) == []


@pytest.mark.machine
@pytest.mark.parametrize("when", ["state", "state/init", "state/log/kubelet.log"])
def test_starts_again_after_up_itself_was_killed(harness, when):
    up = harness.start("up")
    eventually((harness.state.parent / when).exists, what=f"{when} exists")
    up.kill()
    up.wait()
    harness("up")
    assert harness.gpus() == "16"
    harness("down")
    assert leftovers(harness.state) == []


@pytest.mark.machine
def test_gives_our_tests_what_they_rely_on(harness):
    harness("up")
    harness.kubectl("create", "namespace", "smoke")
    eventually(lambda: harness("k", "-n", "smoke", "get", "serviceaccount", "default", check=False).returncode == 0)

    def smoke(*words):
        return harness.kubectl("-n", "smoke", *words)
    smoke("apply", "-f", ROOT / "e2e/cluster/smoke.yaml")
    smoke("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod", "-l", "ends=well", "--timeout=90s")
    smoke("wait", "--for=condition=Ready", "pod/gpu", "pod/nats", "--timeout=120s")
    smoke("wait", "--for=jsonpath={.status.phase}=Bound", "pvc", "--all", "--timeout=90s")
    smoke("rollout", "status", "deploy/web", "--timeout=120s")
    smoke("wait", "--for=jsonpath={.status.phase}=Failed", "pod/glutton", "--timeout=120s")
    killed = harness.get("-n", "smoke", "pod", "glutton")["status"]["containerStatuses"][0]
    assert killed["state"]["terminated"]["reason"] == "OOMKilled"
    # From outside of the cluster: NodePort and log, exec and helm.
    assert "hello from web-" in harness("in", "curl", "-sS", "-m5", "http://172.30.0.1:30080/").stdout
    assert "GET / from" in smoke("logs", "-l", "app=web")
    assert smoke("exec", "nats", "-c", "c", "--", "/nats-server", "-v").strip() == "nats-server: v2.10.29"
    assert harness("helm", "list", "-A").stdout.startswith("NAME")
    # Too many GPUs do not fit, and a readiness probe takes a pod out of the Service.
    smoke("run", "greedy", "--image=commutator/testapp:1", "--overrides", json.dumps(
        {"spec": {"containers": [{"name": "greedy", "image": "commutator/testapp:1",
                                  "resources": {"limits": {"nvidia.com/gpu": 12}}}]}}))
    smoke("wait", "--for=condition=PodScheduled=false", "pod/greedy", "--timeout=90s")
    pod = smoke("get", "pod", "-l", "app=web", "-o", "jsonpath={.items[0].metadata.name}")

    def ready():
        slices = harness.get("-n", "smoke", "endpointslices", "-l", "kubernetes.io/service-name=web")["items"]
        return sum(end["conditions"]["ready"] for part in slices for end in part["endpoints"])
    assert ready() == 2
    smoke("exec", pod, "--", "touch", "/tmp/unready")
    eventually(lambda: ready() == 1, 60, "one of two ready")


@pytest.mark.machine
def test_components_come_back(harness):
    harness("up")
    for component in ("kubelet", "kube-apiserver", "etcd", "kube-controller-manager", "kube-scheduler", "containerd"):
        harness("kill", component)
    eventually(lambda: harness("k", "get", "--raw", "/readyz", check=False).returncode == 0, what="API server")
    harness.kubectl("create", "deployment", "web", "--image=commutator/testapp:1")
    harness.kubectl("rollout", "status", "deploy/web", "--timeout=120s")
    assert harness.gpus() == "16"
    assert harness("kill", "no-such-thing", check=False).returncode != 0


@pytest.mark.machine
def test_our_image_runs_without_rights(harness):
    if not IMAGE.exists():
        unavailable(f"no {IMAGE}; run: make image")
    harness("up")
    harness("load", IMAGE)
    script = ("set -e; id -u; python3 -m dynamo.frontend --help; ! python3 -c 1; ! touch /file;"
              " ! find / -xdev -perm /6000 -type f | grep .")
    harness.kubectl("run", "image", "--image=commutator/dynamo:dev", "--restart=Never", "--overrides", json.dumps(
        {"spec": {"containers": [{
            "name": "image", "image": "commutator/dynamo:dev", "command": ["/bin/sh", "-c", script],
            "workingDir": "/workspace/examples/backends/vllm",
            "securityContext": {"runAsNonRoot": True, "readOnlyRootFilesystem": True,
                                "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}}]}}))
    eventually(lambda: harness.get("pod", "image")["status"]["phase"] in ("Succeeded", "Failed"), what="pod ends")
    log = harness.kubectl("logs", "image")
    assert harness.get("pod", "image")["status"]["phase"] == "Succeeded", log
    assert log.startswith("1000\n") and "this image has no Python" in log


def test_both_ways_to_make_the_image_agree_how_it_runs():
    config = json.loads((ROOT / "image/config.json").read_text())
    stage = (ROOT / "image/Dockerfile").read_text().split("FROM scratch")[1]
    settings = [line.split(None, 1) for line in stage.splitlines() if line and not line.startswith("#")]
    assert settings.pop(0) == ["COPY", "--from=build /rootfs /"]
    assert [value for word, value in settings if word == "ENV"] == config["Env"]
    assert [line for line in settings if line[0] != "ENV"] == [
        ["WORKDIR", config["WorkingDir"]], ["USER", config["User"]]]


def refused(*prefix):
    done = run(*prefix, CLUSTER, "check", check=False)
    assert done.returncode == 1
    return done.stderr


@pytest.mark.machine
def test_check_says_what_is_missing(harness):
    assert "missing: root" in refused("setpriv", "--reuid=65534", "--clear-groups")
    assert "capability CAP_SYS_ADMIN" in refused("setpriv", "--bounding-set=-sys_admin")
    assert "capability CAP_NET_ADMIN" in refused("setpriv", "--bounding-set=-net_admin")
    for hide, missing in (("mount -t tmpfs -o ro none /sys/fs/cgroup", "write access to the cgroup hierarchies"),
                          ("mount --bind /dev/null /usr/sbin/nft", "program nft"),
                          ("mount -t tmpfs none /usr/lib/cni", "CNI plugins")):
        assert f"missing: {missing}" in refused("unshare", "--mount", "sh", "-c", f'{hide}; exec "$@"', "sh")
    # Nothing that up leaves undone looks started.
    up = run("setpriv", "--bounding-set=-sys_admin", CLUSTER, "up", check=False, env=harness.env)
    assert up.returncode == 1 and "cannot run a cluster" in up.stderr
    assert leftovers(harness.state) == []


@pytest.mark.api
def test_api_server_reports_the_command_and_goes(tools):
    done = run(CLUSTER, "api", "--", "sh", "-c", 'kubectl get namespace default -o name; echo "$KUBE_API_DIR"; exit 7',
               check=False)
    name, directory = done.stdout.splitlines()
    assert (done.returncode, name) == (7, "namespace/default")
    assert not pathlib.Path(directory).exists()


@pytest.mark.api
def test_api_servers_do_not_disturb_each_other(tools):
    script = 'kubectl create namespace "n$0" >/dev/null && kubectl get namespaces -o name | grep -c /n'
    with concurrent.futures.ThreadPoolExecutor() as pool:
        runs = [pool.submit(run, CLUSTER, "api", "--", "sh", "-c", script, str(i)) for i in range(3)]
        assert [each.result().stdout for each in runs] == ["1\n"] * 3


@pytest.mark.api
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_api_server_ends_with_the_script(tools, number):
    with subprocess.Popen([CLUSTER, "api", "--", "sh", "-c", 'cd "$KUBE_API_DIR"; echo $(cat *.pid) $$; exec sleep 300'],
                          stdout=subprocess.PIPE, text=True) as api:
        pids = api.stdout.readline().split()
        assert len(pids) == 3
        api.send_signal(number)

    def ended(pid):
        try:
            return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
        except FileNotFoundError:
            return True
    eventually(lambda: all(map(ended, pids)), 60, "all processes end")


@pytest.mark.api
def test_controllers_collect_what_lost_its_owner(tools):
    script = ('kubectl create deployment web --image=x >/dev/null; until kubectl get rs -o name | grep -q web; do :; done;'
              ' kubectl delete deployment web >/dev/null; until [ -z "$(kubectl get rs -o name)" ]; do :; done; echo gone')
    assert run(CLUSTER, "api", "--controllers", "--", "sh", "-c", script, timeout=120).stdout == "gone\n"
