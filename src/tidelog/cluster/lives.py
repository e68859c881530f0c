"""What a broker can have lost between two of its lives: pure.

A killed process leaves its writes in the page cache; a lost power supply does not. Who lost records
must not lead, and must not count as one that has them.
"""

from __future__ import annotations

from tidelog.cluster.image import BrokerRegistration


def may_have_lost_records(before: BrokerRegistration, now: BrokerRegistration) -> bool:
    """Whether records that the broker had in the life before may be missing in this one.

    `before` is the last life that a controller has seen. Lives in between prove nothing: the marker
    must name exactly that life, and boot and mount must be the same as then.
    """
    if not before.directory_id:
        # Written by a version that had one broker to a cluster: nobody else could lead.
        return False
    if now.directory_id != before.directory_id:
        return True
    if now.clean_epoch == before.epoch:
        return False
    same_boot = bool(now.boot_id) and now.boot_id == before.boot_id
    same_mount = bool(now.mount_id) and now.mount_id == before.mount_id
    return not (same_boot and same_mount)
