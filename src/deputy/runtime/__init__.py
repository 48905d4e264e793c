"""Where delegations run: engines that carry them out durably."""
