"""`make demo`: everything at once, in one terminal; with --once it ends by itself.

Three brokers that keep three copies of every partition, a live click stream with bad records in it,
three applications, and a pipeline on Spark that keeps a table and counts pages. On the way a member
of an application, a broker that leads partitions and the Spark driver are killed with SIGKILL. At
the end the same pipeline file is run over history as a batch, and one line says whether everything
adds up; it decides the exit code.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from examples.demo.counting import (
    Balance,
    Progress,
    TopPages,
    balance,
    batch_equals_stream,
    group_lag,
    leaders,
    leaders_in_words,
    member_partitions,
    published_lag,
    rows_in_table,
)
from examples.demo.local_cluster import LocalCluster
from examples.processes import Program, wait_until
from examples.terminal import heading, note, paint, show_command, show_output, tidelog
from scripts.guardian import guard

PIPELINE = Path(__file__).with_name("clicks.yaml")
BROKERS = 3
PARTITIONS = 4
APPLICATIONS = ("billing", "search", "fraud")
WATCH_SECONDS = 3.0
BACKLOG_SECONDS = 600.0


class Demo:
    """The programs of the demo, and the steps in which they are shown."""

    def __init__(self, directory: Path, rate: int) -> None:
        self.directory = directory
        self.ledger = directory / "site.json"
        run = ["tidelog", "pipeline", "run", str(PIPELINE), "--master", "local[2]"]

        def program(name: str, *arguments: str) -> Program:
            return Program(name, list(arguments), directory)

        self.cluster = LocalCluster(directory, BROKERS)
        self.site = program("site", "examples.demo.site", str(self.ledger), "--rate", str(rate))
        application = "examples.demo.application"
        self.applications = [
            program(name, application, group)
            for name, group in (
                ("billing-1", "billing"), ("billing-2", "billing"),
                ("search", "search"), ("fraud", "fraud"),
            )
        ]  # fmt: skip
        self.pipeline = program("pipeline", *run)
        self.batch = program("batch", *run, "--mode", "batch", "--into", str(directory / "history"))
        os.environ["DEMO_DIRECTORY"] = str(directory)
        self.pages = TopPages()

    def start(self) -> None:
        heading("Three brokers, and the topics of a site: three copies of every partition")
        show_command(f"tidelog up --brokers {BROKERS} &")
        begun = time.monotonic()
        os.environ["TIDELOG_BOOTSTRAP_SERVERS"] = self.cluster.start_and_wait()
        note(f"  they are up after {time.monotonic() - begun:.1f} s")
        tidelog("topic", "create", "clicks", "-p", str(PARTITIONS))
        tidelog("topic", "create", "clicks.dead", "-p", "1")
        tidelog("topic", "create", "page-counts", "-p", "1")
        tidelog("topic", "list")
        tidelog("topic", "describe", "clicks")

        heading("A live click stream, and a pipeline on Spark over it")
        show_command(f"tidelog pipeline run {PIPELINE.name} &")
        self.pipeline.start()
        self.site.start()
        for application in self.applications:
            application.start()
        note("  three applications read the same clicks, each a group of its own")
        note("  Spark needs some seconds to start; the clicks wait in the topic")

    def see_the_pipeline(self) -> None:
        heading("The pipeline keeps a table of visits and counts pages")
        self._wait_for_news()
        self.watch(WATCH_SECONDS)

    def _wait_for_news(self) -> None:
        """Until the table has more rows, and the counts are higher, than now."""
        rows, views = rows_in_table(self.directory), self.pages.views

        def more() -> bool:
            self.pipeline.check()
            self.pages.update(0.1)
            return rows_in_table(self.directory) > rows and self.pages.views > views

        wait_until(more, "news from the pipeline", BACKLOG_SECONDS)

    def watch(self, seconds: float) -> None:
        """The table of top pages, painted again as it changes."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.pages.update(0.5)
            self.pages.paint(rows_in_table(self.directory))
        self.pages.settle()

    def kill_a_member(self) -> None:
        heading("A member of an application is killed; the other takes over its partitions")
        half = [PARTITIONS // 2, PARTITIONS // 2]
        wait_until(lambda: member_partitions("billing") == half, "two members")
        tidelog("group", "members", "billing")
        victim = self.applications[0]
        show_command(f"kill -KILL {victim.pid}    # {victim.name}")
        victim.kill()
        wait_until(lambda: member_partitions("billing") == [PARTITIONS], "the takeover")
        tidelog("group", "members", "billing")

    def kill_a_leader(self) -> None:
        heading("A broker that leads partitions is killed; the others lead them, everybody goes on")
        before = leaders("clicks")
        victim = Counter(before.values()).most_common(1)[0][0]
        note(f"  before: {leaders_in_words('clicks', before)}")
        pid = self.cluster.pid_of(victim)
        show_command(f"kill -KILL {pid}    # broker {victim}")
        begun = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        after: dict[int, int] = {}

        def others_lead() -> bool:
            self.cluster.check()
            after.update(leaders("clicks"))
            return not {-1, victim} & set(after.values())

        wait_until(others_lead, "new leaders")
        note(f"  after:  {leaders_in_words('clicks', after)}")
        note(f"          (seen {time.monotonic() - begun:.1f} s after the kill)")
        self._see_all_go_on()
        note(f"  broker {victim} is started again by itself, and catches up:")
        tidelog("cluster", "health", "--wait")

    def _see_all_go_on(self) -> None:
        """Until there are more clicks, and everybody who reads them has got further, than now."""
        begun, views = Progress.of(self.directory, APPLICATIONS), self.pages.views
        now = begun

        def all_go_on() -> bool:
            nonlocal now
            self.pipeline.check()
            self.pages.update(0.1)
            now = Progress.of(self.directory, APPLICATIONS)
            return now.beyond(begun) and self.pages.views > views

        wait_until(all_go_on, "everybody to go on", BACKLOG_SECONDS)
        note(f"  since then: {now.since(begun)}")
        self.watch(WATCH_SECONDS)

    def kill_the_driver(self) -> None:
        heading("The Spark driver is killed, and resumes from its checkpoint")
        show_command(f"kill -KILL {self.pipeline.pid}    # the driver and its JVM")
        self.pipeline.kill()
        show_command(f"tidelog pipeline run {PIPELINE.name} &")
        self.pipeline.start()
        self._wait_for_news()
        self.watch(WATCH_SECONDS)

    def drain(self) -> None:
        heading("The site stops; everybody reads to the end, and the same file runs as a batch")
        self.site.stop()
        show_command(f"tidelog pipeline run {PIPELINE.name} --mode batch --into history &")
        self.batch.start()
        groups = ["tidelog.clicks", *APPLICATIONS]

        def caught_up() -> bool:
            self.pipeline.check()
            return all(group_lag(each) == 0 for each in groups)

        wait_until(caught_up, "a lag of 0", BACKLOG_SECONDS)
        wait_until(lambda: published_lag("clicks") == 0, "the pipeline to say so")
        self.watch(1.0)
        for group in ("tidelog.clicks", "billing"):
            tidelog("group", "describe", group)
        tidelog("pipeline", "list")
        self.pipeline.stop()
        for application in self.applications:
            application.stop()

    def check(self) -> Balance:
        heading("The batch over history, beside what the stream has made")
        wait_until(lambda: not self.batch.running, "the batch", BACKLOG_SECONDS)
        if self.batch.stop() != 0:
            self.batch.check()
        self.pages.update(1.0)
        same = batch_equals_stream(self.directory, self.pages.counts)
        note(f"  the batch {'gives the same rows' if same else 'DIFFERS'}")
        found = balance(self.directory, self.ledger, ["tidelog.clicks", *APPLICATIONS])
        found.same = same
        return found

    def stop(self) -> None:
        self.pages.close()
        for program in (
            self.site, *self.applications, self.pipeline, self.batch, self.cluster,
        ):  # fmt: skip
            program.stop()


def show(demo: Demo, *, once: bool) -> bool:
    demo.start()
    demo.kill_a_member()
    demo.see_the_pipeline()
    demo.kill_a_leader()
    demo.kill_the_driver()
    if not once:
        print(f"\nIt all stays up on {paint(demo.cluster.servers, '1')} until Ctrl-C.")
        with suppress(KeyboardInterrupt):
            while True:
                demo.watch(3600)
        print("\nstopping, and counting")
    demo.drain()
    found = demo.check()
    print(f"\n{paint(found.line, '1;32' if found.holds else '1;31')}", flush=True)
    if not found.holds:
        show_output(found.explanation)
    return found.holds


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    parser.add_argument("--once", action="store_true", help="end by itself after the last step")
    parser.add_argument("--rate", type=int, default=2_000, help="clicks per second")
    given = parser.parse_args()
    guard()
    # These take the same way out as Ctrl-C, through every `finally`.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    begun, directory = time.monotonic(), Path(tempfile.mkdtemp(prefix="tidelog-demo-"))
    demo = Demo(directory, given.rate)
    try:
        good = show(demo, once=given.once)
        note(f"({time.monotonic() - begun:.0f} s)")
        return 0 if good else 1
    except KeyboardInterrupt:
        print("\nstopped")
        return 130
    except (RuntimeError, OSError) as error:
        print(f"{paint('the demo failed:', '1;31')} {error}", file=sys.stderr)
        return 1
    finally:
        # An impatient second Ctrl-C shall not keep the first from cleaning up.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        demo.stop()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
