"""Report what happens in a project to chat tools and pipelines, signed as Standard Webhooks requires.

A run builds its events (`build_events`) and stores them with its results, in one transaction (`hitl.store.events`). Any
hitl process may send them later (`sender`).
"""
