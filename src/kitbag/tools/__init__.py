"""The tools an agent can call. Each tool is a module; its description for the model is a `.md` file beside it."""
