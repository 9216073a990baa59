# SPDX-License-Identifier: Apache-2.0
"""Runs programs side by side, each with its output kept whole: JOBS at once, else as many as there are processors."""
import concurrent.futures
import os
import queue
import select
import subprocess
import tempfile
import threading
import time

PROCESSORS = len(os.sched_getaffinity(0))


# All programs of a user share them, and 128 are usual: a kubelet takes six, a frontend of the reference some ten.
WATCHERS, WATCHERS_PATH = 1024, "/proc/sys/fs/inotify/max_user_instances"


def have_watchers():
    """Lets programs that run side by side watch directories: raises the kernel's limit, until the machine starts anew,
    where it is low and we may. Says so where we may not."""
    try:
        with open(WATCHERS_PATH) as limit:
            have = int(limit.read())
        if have < WATCHERS:
            with open(WATCHERS_PATH, "w") as limit:
                limit.write(str(WATCHERS))
    except PermissionError:
        print(f"{WATCHERS_PATH} is {have}: with many programs some may find no watch left", flush=True)
    except OSError:
        pass  # a kernel without them


class End:
    """How one program ended: exit code (None: it took too long and was killed), seconds, those of CPU, output."""

    def __init__(self, command, code, seconds, cpu, output):
        self.command, self.code, self.seconds, self.cpu, self.output = command, code, seconds, cpu, output

    def took(self):
        return f"{self.seconds:.1f} s, CPU {self.cpu:.1f} s"


def run_one(command, limit=None):
    # A file and no pipe: what a program leaves running behind it must not keep us waiting.
    with tempfile.TemporaryFile() as out:
        begin = time.monotonic()
        code, cpu = wait(command, limit, out)
        out.seek(0)
        return End(command, code, time.monotonic() - begin, cpu, out.read().decode(errors="replace"))


def wait(command, limit, out):
    """Exit code, and the CPU time of the program and of all that it waited for itself."""
    try:
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT) as program:
            ended = os.pidfd_open(program.pid)
            in_time = select.select([ended], [], [], limit)[0]
            os.close(ended)
            if not in_time:
                program.kill()
            _, status, usage = os.wait4(program.pid, 0)
            program.returncode = os.waitstatus_to_exitcode(status)
            return program.returncode if in_time else None, usage.ru_utime + usage.ru_stime
    except OSError as e:  # it cannot be started
        out.write(f"{e}\n".encode())
        return 127, 0.0


def pool(jobs=PROCESSORS):
    have_watchers()
    return concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS") or jobs))


def in_order(commands, limit=None, jobs=PROCESSORS, soon=lambda command: 0):
    """The end of each command in the order given, as soon as it and those before it have ended. They are begun in the order
    of soon(), so that those that take long are not begun last."""
    commands = list(commands)
    with pool(jobs) as workers:
        ends = {i: workers.submit(run_one, commands[i], limit)
                for i in sorted(range(len(commands)), key=lambda i: soon(commands[i]))}
        for i in range(len(commands)):
            yield ends.pop(i).result()


def as_they_end(chains, jobs):
    """The ends of chains of commands, as they come. The steps of a chain run one after another, the commands of a step
    side by side, also where that is more than JOBS."""
    ends = queue.SimpleQueue()

    def follow(chain):
        for step in chain:
            threads = [threading.Thread(target=lambda command=command: ends.put(run_one(command))) for command in step]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    with pool(jobs) as workers:
        for chain in chains:
            workers.submit(follow, chain)
        for _ in range(sum(len(step) for chain in chains for step in chain)):
            yield ends.get()
