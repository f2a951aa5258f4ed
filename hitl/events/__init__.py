"""What others are told of a project: events for chat tools and pipelines, signed as Standard Webhooks says.

    happenings   what a cycle, or its failure, is to be told of      pure, but for what was told before
    drifts       which annotators have changed, told once each
    bodies       an event as JSON; the same as text for chat tools
    signing      the signature
    sending      one request, within a time
    delivery     what is due is sent, by whatever runs; what fails is sent again later

`hitl.store.events` keeps them. A cycle makes them and records them with what they tell of; it never sends them.
"""
