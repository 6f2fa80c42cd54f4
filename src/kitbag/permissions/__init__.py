"""What an agent may do, and where: rules, modes, paths, commands, the sandbox, trust and approvals."""
