"""Testing tools for programs built on Kitbag: a scripted model, in process or over loopback HTTP.

from kitbag.testing import ModelServer, Rule, Script, Scripted, Step
"""

from kitbag.models.scripted import Fault, Rule, Script, Scripted, Seen, Step, load_script, script_of
from kitbag.testing.server import ModelServer

__all__ = ["Fault", "ModelServer", "Rule", "Script", "Scripted", "Seen", "Step", "load_script", "script_of"]
