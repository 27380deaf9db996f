"use strict";
// Search over INDEX (index.js): rows of name, address, summary. A word matches the
// end of a name before its middle, names before summaries.
(function () {
  var field = document.getElementById("search");
  var found = document.getElementById("found");
  var MOST = 40;
  var chosen = 0;

  function score(row, words) {
    var name = row[0].toLowerCase(), last = name.split(/[.:]/).pop(), total = 0;
    for (var i = 0; i < words.length; i++) {
      var w = words[i];
      if (last === w || name === w) total += 100;
      else if (last.indexOf(w) === 0) total += 50;
      else if (name.indexOf(w) >= 0) total += 20;
      else if (row[2].toLowerCase().indexOf(w) >= 0) total += 5;
      else return 0;
    }
    return total - name.length / 100;
  }

  function show(rows) {
    found.textContent = "";
    rows.forEach(function (row, i) {
      var link = document.createElement("a"), summary = document.createElement("small");
      link.href = row[1];
      link.textContent = row[0];
      link.className = i === chosen ? "chosen" : "";
      summary.textContent = row[2];
      link.appendChild(summary);
      found.appendChild(link);
    });
    found.hidden = rows.length === 0;
  }

  function matches() {
    var words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (words.length === 0) return [];
    return INDEX.map(function (row) { return [score(row, words), row]; })
      .filter(function (pair) { return pair[0] > 0; })
      .sort(function (a, b) { return b[0] - a[0]; })
      .slice(0, MOST)
      .map(function (pair) { return pair[1]; });
  }

  field.addEventListener("input", function () {
    chosen = 0;
    show(matches());
  });
  field.addEventListener("keydown", function (event) {
    var rows = matches();
    if (event.key === "ArrowDown") chosen = Math.min(chosen + 1, rows.length - 1);
    else if (event.key === "ArrowUp") chosen = Math.max(chosen - 1, 0);
    else if (event.key === "Enter" && rows[chosen]) location.href = rows[chosen][1];
    else if (event.key === "Escape") field.value = "";
    else return;
    event.preventDefault();
    show(event.key === "Escape" || event.key === "Enter" ? [] : rows);
  });
  document.addEventListener("keydown", function (event) {
    if (event.key === "/" && document.activeElement !== field) {
      event.preventDefault();
      field.focus();
    }
  });
})();
