import type { Client, Pool } from 'pg'
import type { Answer, Peer } from './peer'

/** What must come back for a text. */
export interface Expected {
  readonly text: string
  /** `once`: for exactly one of the calls for this text. */
  readonly created: boolean | 'once'
}

export type Outcome = Answer | Error | null

/** What a peer got wrong in a phase. */
export interface Faults {
  readonly errors: number
  /** The row of another text, or no row. */
  readonly wrongRow: number
  /** `created` for a row that was there, or the other way round. */
  readonly wrongFlag: number
  /** A text that has two rows, or two ids. */
  readonly secondId: number
  /** The message of the first error. */
  readonly firstError: string | undefined
  /** It does not say whether a row was created. */
  readonly noFlag: boolean
}

/** Looks at all the answers of one peer in one phase. Nothing of it is measured. */
export class Checker {
  private errors = 0
  private wrongRow = 0
  private wrongFlag = 0
  private secondId = 0
  private firstError: string | undefined
  private noFlag = false
  private readonly ids = new Map<string, string>()

  constructor(private readonly peer: Peer) {}

  check(expected: readonly Expected[], outcomes: readonly Outcome[]): void {
    const created = new Map<string, number>()
    for (const [at, want] of expected.entries()) {
      const outcome = outcomes[at] ?? null
      if (outcome instanceof Error) this.failed(outcome)
      else if (outcome === null || outcome.text !== want.text) this.wrongRow += 1
      else this.answered(want, outcome, created)
    }
    for (const count of created.values()) if (count !== 1) this.wrongFlag += 1
  }

  /** Compares with the table: one row for a text, and the ids that were answered. */
  async finish(admin: Pick<Pool | Client, 'query'>): Promise<Faults> {
    const { table, textSql = 'url' } = this.peer
    const { rows: doubles } = await admin.query<{ count: number }>(
      `SELECT (count(*) - count(DISTINCT sha256(convert_to(${textSql}, 'UTF8'))))::integer AS count FROM ${table}`,
    )
    const { rows: others } = await admin.query<{ count: number }>(
      `SELECT count(*)::integer FROM unnest($1::text[], $2::text[]) AS a(id, text)
       WHERE NOT EXISTS (SELECT FROM ${table} AS t WHERE t.id::text = a.id AND ${textSql} = a.text)`,
      [[...this.ids.values()], [...this.ids.keys()]],
    )
    const { errors, wrongFlag, firstError, noFlag } = this
    const wrongRow = this.wrongRow + (others[0]?.count ?? 0)
    return {
      errors,
      wrongRow,
      wrongFlag,
      secondId: this.secondId + (doubles[0]?.count ?? 0),
      firstError,
      noFlag,
    }
  }

  private failed(error: Error): void {
    this.errors += 1
    this.firstError ??= shortMessage(error)
  }

  private answered({ text, created: wanted }: Expected, { id, created }: Answer, counts: Map<string, number>): void {
    const known = this.ids.get(text)
    if (known === undefined) this.ids.set(text, id)
    else if (known !== id) this.secondId += 1
    if (created === undefined) this.noFlag = true
    else if (wanted === 'once') counts.set(text, (counts.get(text) ?? 0) + (created ? 1 : 0))
    else if (created !== wanted) this.wrongFlag += 1
  }
}

/** The server's message, which some peers put behind their own, or within it. */
function shortMessage(error: Error): string {
  const { cause } = error
  if (cause instanceof Error) return shortMessage(cause)
  const message = error.message.replaceAll(/\s+/gu, ' ').trim()
  return (
    /index row [^"`]*?maximum(?: size is)? \d+/u.exec(message)?.[0] ??
    message.replaceAll(/https?:\S+/gu, '…').slice(-100)
  )
}

export const hasFaults = ({ errors, wrongRow, wrongFlag, secondId }: Faults): boolean =>
  errors + wrongRow + wrongFlag + secondId > 0
