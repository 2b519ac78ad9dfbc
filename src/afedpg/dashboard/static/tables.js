// Tables that keep their rows while their numbers change: a reader's place and focus stay where they are.

export class Table {
  /** columns: {name, text(row), value?(row), wide?, mark?(cell, row)}; those with a value can be sorted by. */
  constructor(table, columns, caption) {
    this.table = table;
    this.columns = columns;
    this.sort = null; // [column, 1 or -1]
    this.rows = [];
    const head = table.createTHead().insertRow();
    table.createCaption().textContent = caption;
    table.caption.className = "unseen";
    this.heads = columns.map((column, place) => {
      const cell = document.createElement("th");
      cell.scope = "col";
      if (!column.wide) cell.className = "number";
      if (column.value) {
        const button = document.createElement("button");
        button.type = "button";
        button.textContent = column.name;
        button.addEventListener("click", () => this.#turn(place));
        cell.append(button);
      } else cell.textContent = column.name;
      head.append(cell);
      return cell;
    });
    this.body = table.createTBody();
  }

  #turn(place) {
    const [column, direction] = this.sort ?? [];
    this.sort = column === place ? (direction === -1 ? [place, 1] : null) : [place, -1];
    this.heads.forEach((head, i) => {
      if (this.sort?.[0] === i) head.setAttribute("aria-sort", this.sort[1] < 0 ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    this.show(this.rows);
  }

  show(rows) {
    this.rows = rows;
    let sorted = rows;
    if (this.sort) {
      const [place, direction] = this.sort, value = this.columns[place].value;
      const rank = (row) => value(row) ?? -Infinity;
      sorted = [...rows].sort((a, b) => (rank(a) < rank(b) ? -1 : rank(a) > rank(b) ? 1 : 0) * direction);
    }
    while (this.body.rows.length > sorted.length) this.body.deleteRow(-1);
    sorted.forEach((row, i) => {
      const line = this.body.rows[i] ?? this.body.insertRow();
      this.columns.forEach((column, place) => {
        const cell = line.cells[place] ?? line.insertCell();
        const text = column.text(row);
        if (!column.wide) cell.className = "number";
        if (cell.textContent !== text) cell.textContent = text;
        column.mark?.(cell, row);
      });
    });
  }
}
