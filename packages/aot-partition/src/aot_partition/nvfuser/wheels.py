from aot_core.protocol import Availability
def find_obstacle(): return Availability(True, "")
