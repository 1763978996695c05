"""The faults of the crash tests: what happens to a node (a member or a brick) or to the store below it."""

DAEMON_KILLED, POWER_CUT = "daemon killed", "power cut"


def of(node):
    """All faults; `node` names what is killed."""
    return (f"{node} killed", DAEMON_KILLED, POWER_CUT)


def take_down(node, fault, seed):
    """Makes the fault happen; returns what is to be said of it. The node's process has ended afterwards."""
    said = ""
    if fault == DAEMON_KILLED:
        node.store.kill_daemon()
    elif fault == POWER_CUT:
        said = node.store.cut_power(seed)
    node.kill()
    return said


def bring_back(node, fault):
    """Recovers the node's store, if it went down, and mounts it."""
    if fault in (DAEMON_KILLED, POWER_CUT):
        node.store.take_off()
        node.store.detach()
        node.store.check()
        node.store.mount()
