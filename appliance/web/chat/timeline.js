// The part of a room's log that the page holds: records with consecutive ops.
//
//      1 ............ first ======== last ............ newest
//        not loaded         records        not loaded (reading history)
//
// Live means last == newest: nothing is left out at that end.
//
// It never has a hole. It is bounded: what is farther than RECORDS_MAX from where the reader is
// gets dropped, and is fetched again when scrolled to.

export const RECORDS_MAX = 1500;
export const RECORDS_KEPT = 400; // while the reader is at the newest end

export class Timeline {
  constructor(newest = 0) {
    this.reset(newest);
  }

  reset(newest) {
    this.records = [];
    this.newest = newest; // highest op known to exist
    this.oldestReached = newest === 0;
  }

  get first() {
    return this.records.length ? this.records[0].op : this.newest + 1;
  }

  get last() {
    return this.records.length ? this.records[this.records.length - 1].op : this.newest;
  }

  get live() {
    return this.last === this.newest;
  }

  // A record of the subscription. Returns "added", "elsewhere" (counted; the reader is in history),
  // "known" or "gap".
  addLive(record) {
    if (record.op <= this.newest) return "known";
    if (record.op !== this.newest + 1) return "gap";
    const live = this.live;
    this.newest = record.op;
    if (!live) return "elsewhere";
    this.records.push(record);
    return "added";
  }

  // A page of history, either end, whatever its order; what is known already or does not touch is
  // left out.
  addPage(page, hasMore, backward) {
    const sorted = [...page].sort((a, b) => a.op - b.op);
    if (backward) {
      const older = sorted.filter((record) => record.op < this.first);
      if (older.length && older[older.length - 1].op !== this.first - 1) return 0;
      this.records.unshift(...older);
      this.oldestReached = !hasMore || this.first <= 1;
      if (this.records.length > RECORDS_MAX) this.records.length = RECORDS_MAX;
      return older.length;
    }
    const younger = sorted.filter((record) => record.op > this.last);
    if (younger.length && younger[0].op !== this.last + 1) return 0;
    this.records.push(...younger);
    this.newest = Math.max(this.newest, this.last);
    if (this.records.length > RECORDS_MAX) this.dropOldest(RECORDS_MAX);
    return younger.length;
  }

  // Keep the `count` newest records.
  dropOldest(count) {
    if (this.records.length <= count) return;
    this.records.splice(0, this.records.length - count);
    this.oldestReached = false;
  }

  // The reader is at the newest end: let go of what scrolled far out of sight.
  settle() {
    if (this.records.length > 2 * RECORDS_KEPT) this.dropOldest(RECORDS_KEPT);
  }
}
