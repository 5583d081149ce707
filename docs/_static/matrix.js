// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Lists that filter the table "Every cell" of the compatibility matrix. Without JavaScript the whole table is shown.

document.addEventListener("DOMContentLoaded", () => {
  const table = document.querySelector("#every-cell table");
  if (!table) return;
  const rows = [...table.tBodies[0].rows];
  const names = [...table.tHead.rows[0].cells].map((cell) => cell.textContent.trim());
  const words = (row, column) => row.cells[column].textContent.trim().split(", ");
  const form = document.createElement("form");
  form.className = "matrix-filter";
  form.setAttribute("aria-label", "Filter the table");
  form.addEventListener("submit", (event) => event.preventDefault());

  const lists = ["feature", "accelerator", "evidence"].map((name) => {
    const column = names.indexOf(name);
    const label = document.createElement("label");
    const select = document.createElement("select");
    select.name = name;
    select.append(new Option("all", ""));
    const values = new Set(rows.flatMap((row) => words(row, column)));
    values.forEach((value) => select.append(new Option(value, value)));
    label.append(name + " ", select);
    form.append(label);
    return { column, select };
  });

  const count = document.createElement("output");
  count.setAttribute("aria-live", "polite");
  form.append(count);

  const filter = () => {
    let shown = 0;
    rows.forEach((row) => {
      const fits = ({ column, select }) => !select.value || words(row, column).includes(select.value);
      row.hidden = !lists.every(fits);
      shown += row.hidden ? 0 : 1;
    });
    count.value = `${shown} of ${rows.length} rows`;
  };
  form.addEventListener("change", filter);
  table.closest(".table-wrapper, table").before(form);
  filter();
});
