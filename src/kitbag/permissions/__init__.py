"""What an agent is allowed to do, and where: rules, modes, paths, trust and approvals."""
