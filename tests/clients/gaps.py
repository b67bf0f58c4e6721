"""What origins saw, and checks that the gaps were long enough."""

# A gap may appear this much shorter, because of clocks and the time between curtsy's write and the kernel's timestamp.
TOLERANCE = 0.001


def pages_seen(world, host):
    """All requests but those that curtsy, or the client, makes for robots.txt."""
    return [visit for visit in world.internet.visits(host) if visit.path != "/robots.txt"]


def check_gaps(visits, delay, tolerance):
    times = sorted(visit.at for visit in visits)
    gaps = [later - earlier for earlier, later in zip(times, times[1:])]
    early = [f"{gap * 1000:.1f}" for gap in gaps if gap < delay - tolerance]
    assert not early, f"gaps of {', '.join(early)} ms at {visits[0].host}, not {delay * 1000:.0f}"
