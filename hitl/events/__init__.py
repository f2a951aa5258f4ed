"""Tell others what happens in a project: events for chat tools and pipelines, signed as Standard Webhooks says.

    build_events    the events of a cycle, or of its failure     pure, but for what was told before
    bodies          an event as JSON; the same as text for chat tools
    sender          what is due is sent, by whatever runs; what fails is sent again later

`hitl.store.events` keeps them. A cycle makes them and records them with what they tell of; it never sends them.
"""
