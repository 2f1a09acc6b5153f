/** What became of the lines so far: `lines` = created + found + rejected + blank. */
export interface ImportCounts {
  readonly lines: number
  readonly created: number
  /** Stood in the table already, or in an earlier line. */
  readonly found: number
  readonly rejected: number
  /** Lines without a character; one of white space is a text like any other. */
  readonly blank: number
  /** Of those created or found: the row's hash number is not 0, so that another text has its hash. */
  readonly collisions: number
}

export interface RejectedLine {
  /** 1-based. */
  readonly line: number
  /** One clause that never quotes the text. */
  readonly reason: string
}

const REJECTIONS_KEPT = 5

/** Counts lines in their order. */
export class Tally {
  private readonly sums = { lines: 0, created: 0, found: 0, rejected: 0, blank: 0, collisions: 0 }
  private readonly kept: RejectedLine[] = []

  get counts(): ImportCounts {
    return { ...this.sums }
  }

  /** The first five. */
  get rejections(): readonly RejectedLine[] {
    return this.kept
  }

  blank(): void {
    this.sums.lines += 1
    this.sums.blank += 1
  }

  rejected(reason: string): void {
    this.sums.lines += 1
    this.sums.rejected += 1
    if (this.kept.length < REJECTIONS_KEPT) this.kept.push({ line: this.sums.lines, reason })
  }

  stored(created: boolean, hashNumber: number): void {
    this.sums.lines += 1
    this.sums[created ? 'created' : 'found'] += 1
    if (hashNumber > 0) this.sums.collisions += 1
  }
}
