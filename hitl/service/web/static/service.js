"use strict";
// Figures: every element of class "plot" draws the figure of its id. Live: news of the project refresh the page's parts.
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
  const address = document.body.dataset.state;
  if (address && document.querySelector("[data-live]")) {
    const say = (text) => { if (state && state.textContent !== text) state.textContent = text; };
    let seen = null;
    const look = async () => {
      if (document.hidden) return;
      try {
        const answer = await fetch(address);
        if (!answer.ok) throw new Error(answer.status);
        const now = await answer.text();
        if (seen !== null && now !== seen) htmx.trigger(document.body, "hitl:changed");
        seen = now;
        say("live");
      } catch {
        say("not live: trying again");
      }
    };
    look();
    setInterval(look, 1500);
    document.addEventListener("visibilitychange", look);
  }

  // Filters act when they change; without a script there is the button.
  document.querySelectorAll("form[data-now]").forEach((form) => {
    form.querySelectorAll("select, input[type=checkbox]").forEach((field) =>
      field.addEventListener("change", () => form.requestSubmit()));
  });
  document.querySelectorAll("form[data-sure]").forEach((form) =>
    form.addEventListener("submit", (event) => { if (!window.confirm(form.dataset.sure)) event.preventDefault(); }));
})();
