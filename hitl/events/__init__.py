"""Report what happens in a project: events for chat tools and pipelines, signed as Standard Webhooks requires.

    build_events    build the events of a run or of its failure; reads only what was announced before
    bodies          format an event as JSON, or as text for chat tools
    sender          send events that are due from any hitl process, and retry those that failed

`hitl.store.events` stores them. A run records its events in the same transaction as the results they report; it never
sends them.
"""
