"use strict";
// Figures: every element of class "plot" draws the figure of its id. Live: what the server tells refreshes the page's parts.
(() => {
  let figures = {};
  const read = () => document.querySelectorAll("script.figures").forEach((place) => {
    figures = { ...figures, ...JSON.parse(place.textContent) };
  });
  const drawAll = () => document.querySelectorAll(".plot").forEach((place) => {
    if (figures[place.id]) drawFigure(place, figures[place.id]);
  });
  let width = 0;
  window.addEventListener("resize", () => {
    if (window.innerWidth !== width) drawAll();
    width = window.innerWidth;
  });
  read();
  drawAll();

  // A part that was swapped in may bring new figures.
  document.body.addEventListener("htmx:afterSettle", () => { read(); drawAll(); });

  const state = document.getElementById("live-state");
  const address = document.body.dataset.events;
  if (address && document.querySelector("[data-live]") && window.EventSource) {
    const source = new EventSource(address);
    const say = (text) => { if (state && state.textContent !== text) state.textContent = text; };
    const changed = () => htmx.trigger(document.body, "hitl:changed");
    source.onopen = () => say("live");
    source.onerror = () => say("not live: trying again");
    ["belief", "cycle", "plan", "reload"].forEach((name) => source.addEventListener(name, changed));
  }

  // Filters act when they change; without a script there is the button.
  document.querySelectorAll("form[data-now]").forEach((form) => {
    form.querySelectorAll("select, input[type=checkbox]").forEach((field) =>
      field.addEventListener("change", () => form.requestSubmit()));
  });
  document.querySelectorAll("form[data-sure]").forEach((form) =>
    form.addEventListener("submit", (event) => { if (!window.confirm(form.dataset.sure)) event.preventDefault(); }));
})();
