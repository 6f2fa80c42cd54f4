"""The interactive chat: terminal and plain UI, commands, input. On top of the runtime package."""
