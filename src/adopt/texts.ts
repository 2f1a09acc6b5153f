import type { ObjectLiteral } from 'typeorm'
import { findDrift } from '../schema/readiness'
import { indexCondition, sameCondition } from '../sql/alter'
import type { LookupIndex } from '../sql/catalog'
import { serverError, SQLSTATE } from '../sql/sqlstate'
import { tableName, textRules } from '../sql/text-table'
import { dropTrigger } from '../sql/trigger-set'
import { guardOf } from '../triggers/guard'
import { type AdoptStep, parseRows, type PlannedStep } from './options'
import {
  columnsOfChanges,
  pagesOf,
  readChanges,
  readTextsOf,
  type RefusedSpot,
  reportRefused,
  sweepPages,
} from './pages'
import { AdoptionError, type AdoptSession, Later } from './session'
import { beside, endFollowing, findFollowing, guardIn, swapGuards } from './sql/swap'
import {
  analyzeTable,
  BY_INDEX,
  type Check,
  createAdoptions,
  createIndex,
  createLookup,
  disableTriggers,
  dropIndex,
  endAdoption,
  findTransitional,
  leave,
  textCheck,
  vacuumTable,
} from './sql/table'
import {
  beginAdoption,
  countQueue,
  createObjects,
  deleteRefused,
  dropNotes,
  dropNumbered,
  fillPages,
  findChains,
  countDuplicates,
  keepRefused,
  lockChains,
  numberChains,
  readQueue,
  readRefused,
  refusedTexts,
  type Wanted,
  writeNumbers,
  writeTexts,
} from './sql/texts'
import { guardedAs, noteOf, refuseTaken, refuseTarget, targetOf } from './swap'
import { againstOwn, KEYS_NAMED, normalizeStored, refuseNullRows, type Target } from './target'
import {
  beginState,
  type Duplicates,
  finishWork,
  type FoundRows,
  goOn,
  makeIndex,
  makeLookup,
  planRequired,
  type RefusedRow,
  requireNotNull,
  type WorkRun,
  throughPlaces,
  type Work,
  type WorkState,
} from './work'

/** The state of the adoption of a text. */
export interface TextState extends WorkState {
  readonly wanted: Wanted
  readonly page: number
  readonly pages: number | null
  /** Whether a guard of another declaration exists beside it. @default false */
  readonly swaps?: boolean
  /** Whether a guard exists and rows are normalized under it. @default false */
  readonly renormalizes?: boolean
}

/** Few rows, because a client may wait for them. */
const TEXT_BATCH = { first: 200, least: 20 }
/** How often a sweep frees the space of old row versions for new ones. Otherwise the heap would double. */
const VACUUMS = 4
const VACUUM_LEAST_PAGES = 1_000
/** Few enough notes for the last transaction, which holds the lock, to settle at once. */
const LAST_NOTES = 20
/** The most notes to settle in one step, while clients write as quickly as notes are settled. */
const MOST_NOTES = 200

/** A text, and its table on this connection. */
export abstract class TextWork implements Work {
  readonly kind = 'text'
  readonly writes: Work['writes'] = 'alone'
  readonly said: string
  readonly rules: string
  readonly stands: Work['stands']
  readonly writtenColumns: readonly string[]
  readonly written: Work['written']
  readonly on: Target['on']
  readonly facts: Target['facts']
  protected readonly target: Target

  /** @param declared the table with the declared columns */
  constructor(
    protected readonly declared: Target,
    readonly state: TextState | undefined,
  ) {
    const { declaration } = declared
    this.target = targetOf(declared)
    const { on, normalizes } = this.target
    const { table } = on
    this.on = on
    this.facts = declared.facts
    this.said = `"${declaration.name}"`
    this.rules = rulesOf(this.target)
    this.stands = findDrift(declaration.table, declared.state).length === 0 ? 'ready' : 'none'
    this.writtenColumns = normalizes ? table.text.map(({ name }) => name) : []
    this.written = {
      what: normalizes ? 'a row with its normalized text' : 'a row that gets its hash',
      ours: [table.index, table.check],
      ofUnique:
        'preview --normalize lists the texts that become equal. Without the unique index, clients can store equal texts ' +
        'until the step guard: they are reported, and --merge merges them.',
    }
  }

  async prepare(session: AdoptSession): Promise<void> {
    await stopFollowing(session, this.target)
  }

  abstract refuse(): void

  abstract plan(): PlannedStep[]

  leave(): string[] {
    const { declaration, on } = this.declared
    if (this.state === undefined && guardedAs(this.declared) === 'none') refuseTaken(this.declared)
    // The guard of another declaration is kept.
    if (this.state?.swaps === true) return leave(beside(on))
    return [...guardOf(on.table).drop, ...endFollowing(on), ...leave(on, declaration.lookup)]
  }

  async report(session: AdoptSession, step: AdoptStep, unchanged: boolean): Promise<FoundRows> {
    const { total, first } = unchanged ? { total: 0, first: [] } : await refusedRows(session, this.target)
    const duplicates = step === 'done' || step === 'clean' ? await this.duplicates(session) : undefined
    return { refused: first, refusedTotal: total, duplicates }
  }

  private async duplicates({ query }: AdoptSession): Promise<Duplicates> {
    const [row] = await query<Record<'groups' | 'surplus' | 'largest' | 'first', string>>(
      countDuplicates(this.on, KEYS_NAMED),
    )
    return {
      groups: Number(row?.groups ?? 0),
      surplus: Number(row?.surplus ?? 0),
      largest: Number(row?.largest ?? 0),
      first: parseRows(row?.first ?? '[]', 3) as ObjectLiteral[][],
    }
  }
}

/** A text without a guard, or with that of another declaration, which exists until the new guard is made. */
export class UnguardedText extends TextWork {
  refuse(): void {
    refuseTarget(this.declared, this.state !== undefined)
  }

  /** Adds columns and transitional triggers. After its commit, every written row has its hash. */
  async begin(run: WorkRun): Promise<AdoptStep> {
    const { session } = run
    const { on, hidden, state, required, swap } = this.target
    await this.refuseNulls(session, [...required, ...(swap?.tightened ?? [])])
    await beginState(run, this, swap ? { swaps: true } : {})
    // A restored backup may lack the state of an adoption.
    if ((await session.query(findTransitional(on))).length > 0) {
      await session.locked(
        { on, step: 'begin', mode: 'ACCESS EXCLUSIVE' },
        async () => await session.all(endAdoption(on)),
      )
    }
    await session.all(createObjects(on))
    const standing = new Set(state.columns.map(({ name }) => name))
    // If these columns were made by hand, their values are checked.
    const wanted: Wanted = standing.has(on.table.hash) ? 'wrong' : 'missing'
    // If a guard has lost a trigger, its other triggers are dropped.
    const note = swap ? undefined : noteOf(this.target)
    const left = note ? guardIn(state, on, note).triggers : []
    return await session.locked({ on, step: 'begin', mode: 'ACCESS EXCLUSIVE' }, async () => {
      await session.all(left.map(({ name }) => dropTrigger(tableName(on.table), name)))
      await session.all(beginAdoption(on, hidden, standing))
      return await goOn(session, on, 'fill', { wanted, page: 0, pages: null })
    })
  }

  private async refuseNulls({ query }: AdoptSession, columns: readonly string[]): Promise<void> {
    const { on, state } = this.target
    const there = columns.filter((name) => name !== on.table.hash && state.columns.some((one) => one.name === name))
    const todo = 'Give them a value or delete them, or declare the property nullable.'
    await refuseNullRows(query, on, there, { todo })
  }

  /** Sweeps until no row is left. Rows that another session had locked are swept again. */
  async fill({ session, counts, onProgress }: WorkRun): Promise<AdoptStep> {
    const { target, on } = this
    let { wanted, page, pages } = { wanted: 'missing' as Wanted, page: 0, pages: null as number | null, ...this.state }
    for (let sweeps = 1; ; sweeps += 1) {
      const sweep = { wanted, page, pages: pages ?? (await pagesOf(session, target)) }
      const vacuumed = Math.max(VACUUM_LEAST_PAGES, Math.ceil(sweep.pages / VACUUMS))
      const before = counts.filled
      let last = page
      const left = await sweepPages(
        session,
        target,
        sweep,
        async (part) => {
          const changes = target.normalizes ? await readChanges(session, target, part, wanted) : []
          const stored = JSON.stringify({ wanted, page: part.lines ? part.from : part.to, pages: sweep.pages })
          const given =
            changes.length > 0 ? [changes.map(({ spot }) => spot), ...columnsOfChanges(target, changes)] : []
          const sql = fillPages(on, part, wanted, changes.length > 0)
          const [row] = await session.query<Filled>(sql, [on.table.guard, stored, ...given])
          counts.filled += Number(row?.written ?? 0)
          counts.normalized += changes.length
          return Number(row?.seen ?? 0) - Number(row?.written ?? 0)
        },
        async (next) => {
          onProgress({ step: 'fill', fraction: next / Math.max(sweep.pages, 1), rows: counts.filled })
          if (Math.floor(next / vacuumed) > Math.floor(last / vacuumed)) await session.query(vacuumTable(on))
          last = next
          return false
        },
      )
      await session.query(vacuumTable(on))
      if (left === 0 && page === 0) return await goOn(session, on, 'number')
      if (counts.filled === before) await session.rest(sweeps)
      ;[page, pages] = [0, null]
      await goOn(session, on, 'fill', { page, pages })
    }
  }

  /** Gives rows of equal hash the numbers 0, 1, 2 …, duplicates too, so that the index cannot fail. */
  async number({ session, counts }: WorkRun): Promise<AdoptStep> {
    const { on } = this
    await session.all(findChains(on))
    await throughPlaces(session, TEXT_BATCH, async (last, limit) => {
      const [row] = await session.patiently(
        'number',
        async () => await session.query<Filled & { last: string | null }>(numberChains(on), [last, limit]),
      )
      const [seen, written] = [Number(row?.seen ?? 0), Number(row?.written ?? 0)]
      counts.numbered += written
      return { seen, last: row?.last ?? last, stuck: seen - written }
    })
    return await goOn(session, on, 'index')
  }

  async index({ session, onProgress }: WorkRun): Promise<AdoptStep> {
    const { on } = this
    const { state, declaration } = this.target
    onProgress({ step: 'index', fraction: undefined, rows: 0 })
    const { table } = on
    const columns = JSON.stringify([...table.scope, table.hash, table.number])
    const isThere = state.indexes.some(
      (one) =>
        one.name === table.index &&
        one.valid &&
        one.unique &&
        sameCondition(indexCondition(table), one.condition) &&
        JSON.stringify(one.columns) === columns,
    )
    try {
      if (!isThere) await makeIndex(session, on, table.index, createIndex(on))
    } catch (error) {
      if (serverError(error)?.code !== SQLSTATE.uniqueViolation) throw error
      await session.query(dropIndex(on, table.index))
      // A client wrote numbers by hand.
      return await goOn(session, on, 'number')
    }
    const [lookup] = lookupsOf(this.target)
    const hasLookup = state.indexes.some(({ name, valid }) => name === declaration.lookup && valid)
    if (lookup && !hasLookup) await makeLookup(session, on, lookup)
    return await goOn(session, on, 'check')
  }

  private ownCheck(): Check {
    return textCheck(
      this.on,
      this.target.state.checks.some(({ name }) => name === this.on.table.check),
    )
  }

  /** Adds checks as NOT VALID, validates them in one scan that blocks nobody, and then requires the columns. */
  async check(run: WorkRun): Promise<AdoptStep> {
    const { session } = run
    const { on, required } = this.target
    const mend = async (): Promise<AdoptStep> => {
      await this.refuseNulls(session, required)
      // A row without its hash, or with another hash, was written past the triggers.
      return await goOn(session, on, 'fill', { wanted: 'wrong', page: 0, pages: null })
    }
    return await requireNotNull(run, on, required, 'guard', mend, this.ownCheck())
  }

  /** After the commit of its last transaction, no text is stored twice. */
  async guard(run: WorkRun): Promise<AdoptStep> {
    const { session } = run
    const { target } = this
    const { on, swap } = target
    await this.reviewRefused(run)
    await refuseListed(run, target)
    await this.refuseNulls(session, swap?.tightened ?? [])
    // This uses the unique index, which does not exist while the notes are made.
    await session.patiently('index', async () => await session.query(dropNumbered(on)))
    const mode = swap ? 'ACCESS EXCLUSIVE' : 'SHARE ROW EXCLUSIVE'
    const prepare = async (): Promise<void> => await settleMost(run, target)
    return await session.locked({ on, step: 'guard', mode, prepare }, async (inTime) => {
      await settleRest(session, target)
      inTime()
      await session.all(swap ? swapGuards(on, swap) : [...guardOf(on.table).create, disableTriggers(on)])
      return await goOn(session, on, 'clean', swap ? { rules: rulesOf({ on: swap.final }), swaps: false } : {})
    })
  }

  /** Removes corrected and deleted rows from the list of refused rows. Deletes the others if the caller wants that. */
  private async reviewRefused({ session, options }: WorkRun): Promise<void> {
    const { on, target } = this
    const rows = await session.query<Readonly<Record<string, string | null>>>(refusedTexts(on))
    const refused = rows.filter(
      (row) => 'refused' in normalizeStored(target.declaration.text, readTextsOf(target, row)),
    )
    if (options.refused === 'delete' && refused.length > 0) {
      const spots = refused.map(({ spot }) => spot)
      const remove = async () => await session.query(deleteRefused(on), [spots])
      await session.asOrigin(remove).catch((error: unknown) =>
        againstOwn(error, {
          on: on.table,
          what: 'to delete a row whose text the normalizer refuses',
          next: 'Delete or change what refers to it, or keep it with --refused keep',
          ours: [],
        }),
      )
    }
    // By key, because a row that a client has written to meanwhile is at another place.
    await session.query(keepRefused(on), [refused.map(({ key }) => key)])
  }

  /**
   * Columns where the old declaration allowed NULL become NOT NULL first. No row with NULL can be written any more, and
   * existing rows with NULL stop the command.
   */
  async clean(run: WorkRun): Promise<AdoptStep> {
    const { session } = run
    const { on, required } = this.target
    if (required.length > 0) {
      return await requireNotNull(run, on, required, 'clean', async () => {
        await this.refuseNulls(session, required)
        return 'clean'
      })
    }
    await finishWork(session, on, 'clean', endAdoption(on))
    await session.query(analyzeTable(on))
    return 'done'
  }

  plan(): PlannedStep[] {
    const { on, hidden, required, state, swap } = this.target
    const standing = new Set(state.columns.map(({ name }) => name))
    const steps: PlannedStep[] = [
      { step: 'begin', lock: undefined, statements: [...createAdoptions(on), ...createObjects(on)] },
      { step: 'begin', lock: 'ACCESS EXCLUSIVE', statements: beginAdoption(on, hidden, standing) },
      {
        step: 'fill',
        lock: undefined,
        statements: [fillPages(on, { from: 0, to: 16 }, 'missing', false), vacuumTable(on)],
      },
      { step: 'number', lock: undefined, statements: [...findChains(on), numberChains(on)] },
      {
        step: 'index',
        lock: undefined,
        statements: [createIndex(on), ...lookupsOf(this.target).flatMap(createLookup)],
      },
      ...planRequired(on, required, 'check', this.ownCheck()),
      { step: 'guard', lock: undefined, statements: [lockChains(on), writeNumbers(on)] },
    ]
    if (swap) {
      const { final, tightened } = swap
      // The columns that become NOT NULL once the new guard exists.
      const late = [...tightened, ...(tightened.length === 0 || final.table.nullable ? [] : [final.table.hash])]
      steps.push({ step: 'guard', lock: 'ACCESS EXCLUSIVE', statements: swapGuards(on, swap) })
      steps.push(...planRequired(final, late, 'clean'))
    } else {
      const statements = [...guardOf(on.table).create, disableTriggers(on)]
      steps.push({ step: 'guard', lock: 'SHARE ROW EXCLUSIVE', statements })
    }
    steps.push({ step: 'clean', lock: 'ACCESS EXCLUSIVE', statements: endAdoption(on) })
    return [...steps, { step: 'clean', lock: undefined, statements: [analyzeTable(on)] }]
  }
}

export const rulesOf = ({ on: { table }, swap }: Pick<Target, 'on' | 'swap'>): string =>
  JSON.stringify([
    textRules(table, table.digest.name),
    table.deleted,
    table.normalizers,
    ...(swap ? [swap.before.rules] : []),
  ])

const lookupsOf = ({ on: { table }, declaration: { lookup: name } }: Target): LookupIndex[] =>
  name === undefined ? [] : [{ rows: table, name, column: table.text[0]?.name ?? '' }]

/** Drops the objects of `follow`, if they exist because such a command was killed. */
export async function stopFollowing(session: AdoptSession, { on }: Pick<Target, 'on'>): Promise<void> {
  const [row] = await session.query<{ found: boolean }>(findFollowing(on))
  if (row?.found !== true) return
  await session.locked({ on, step: 'follow', mode: 'ACCESS EXCLUSIVE' }, async () => {
    await session.all(endFollowing(on))
  })
}

/** Reads the first rows whose texts are refused, and the number of all. */
export async function refusedRows(
  { query }: AdoptSession,
  { on }: Target,
): Promise<{ total: number; first: RefusedRow[] }> {
  const rows = await query<Record<'key' | 'reason' | 'total', string>>(readRefused(on, KEYS_NAMED))
  const first = rows.map(({ key, reason }) => ({ key: parseRows(key, 1) as ObjectLiteral, reason }))
  return { total: Number(rows[0]?.total ?? 0), first }
}

/** @throws AdoptionError if texts are refused, unless the caller keeps them */
export async function refuseListed({ session, options }: WorkRun, target: Target): Promise<void> {
  if (options.refused === 'keep') return
  const { total, first } = await refusedRows(session, target)
  if (total === 0) return
  const named = first.map(({ key, reason }) => `${JSON.stringify(key)}: ${reason}`).join('; ')
  throw new AdoptionError(
    'refused',
    `The normalizer refuses the texts of ${total} rows of ${tableName(target.on.table)}: ${named}. ` +
      `Correct or delete them, or keep them as they are with --refused keep.`,
  )
}

type Filled = Readonly<Record<'seen' | 'written', string | null>>

/** Processes what clients write meanwhile, until the remaining rows can be processed under the lock. */
async function settleMost({ session, onProgress }: WorkRun, target: Target): Promise<void> {
  let before = Infinity
  for (let rounds = 1; ; rounds += 1) {
    let [last, stuck] = ['0', 0]
    // Reads the current notes once. Later notes wait for the next round, or this round might never end.
    await session.inBatches(TEXT_BATCH, async (limit) => {
      const notes = await notesAfter(session, target, last, limit)
      if (notes.length > 0)
        stuck += await session.patiently('number', async () => await settleNotes(session, target, notes))
      last = notes.at(-1) ?? last
      return { done: notes.length, more: notes.length === limit }
    })
    const [row] = await session.query<{ notes: string }>(countQueue(target.on), [MOST_NOTES + 1])
    const left = Number(row?.notes ?? 0)
    onProgress({ step: 'guard', fraction: undefined, rows: left })
    if (stuck === 0 && (left <= LAST_NOTES || (left >= before && left <= MOST_NOTES))) return
    before = left
    if (stuck > 0) await session.rest(rounds)
  }
}

/** Settles all remaining notes, under the lock of the transaction. @throws Later if that cannot be done now */
async function settleRest(session: AdoptSession, target: Target): Promise<void> {
  await session.query(BY_INDEX)
  // A text that is normalized moves to another chain, which is noted.
  for (let round = 0; round < 3; round += 1) {
    const notes = await notesAfter(session, target, '0', MOST_NOTES + 1)
    if (notes.length === 0) return
    if (notes.length > MOST_NOTES || (await settleNotes(session, target, notes)) > 0) break
  }
  throw new Later('There is more to do than the lock has time for.')
}

async function notesAfter({ query }: AdoptSession, { on }: Target, last: string, limit: number): Promise<string[]> {
  return (await query<{ seq: string }>(readQueue(on), [last, limit])).map(({ seq }) => seq)
}

/** A row of a chain, read and locked. A row that another session has locked has no spot. */
type ChainRow = Readonly<Record<string, string | null>>

/** The values to write into the rows of some chains. */
interface Writes {
  readonly numbers: { readonly spot: string; readonly number: number; readonly chained: boolean }[]
  readonly texts: { readonly spot: string; readonly texts: readonly (string | null)[] }[]
  readonly refused: RefusedSpot[]
}

/** @returns how many chains are left unchanged, because another session has locked a row, or they must be read again */
async function settleNotes(session: AdoptSession, target: Target, notes: readonly string[]): Promise<number> {
  const { on } = target
  const chains = new Map<string, ChainRow[]>()
  for (const row of await session.query<ChainRow>(lockChains(on), [notes])) {
    const chain = row['chain'] ?? ''
    chains.set(chain, [...(chains.get(chain) ?? []), row])
  }
  const writes: Writes = { numbers: [], texts: [], refused: [] }
  const { numbers, texts, refused } = writes
  const stuck: string[] = []
  for (const [chain, rows] of chains) {
    const isLocked = rows.some(({ spot }) => spot === null)
    if (isLocked || !planChain(target, rows, writes)) stuck.push(chain)
  }
  await reportRefused(session, target, refused)
  if (texts.length > 0) {
    const columns = on.table.text.map((_, index) => texts.map((one) => one.texts[index] ?? null))
    await session.query(writeTexts(on), [texts.map(({ spot }) => spot), ...columns])
  }
  if (numbers.length > 0) {
    const columns = (['spot', 'number', 'chained'] as const).map((name) => numbers.map((one) => one[name]))
    await session.query(writeNumbers(on), columns)
  }
  await session.query(dropNotes(on), [notes, stuck])
  return stuck.length
}

/**
 * Rows whose text the normalizer changes leave the chain. The first of the others is the anchor, and each has a number.
 *
 * @returns false if the chain must be read again, because the anchor leaves rows behind that were not read
 */
function planChain(target: Target, rows: readonly ChainRow[], { numbers, texts, refused }: Writes): boolean {
  const staying = rows.filter((row) => {
    if (!target.normalizes) return true
    const spot = row['spot'] ?? ''
    const normalized = normalizeStored(target.declaration.text, readTextsOf(target, row))
    if ('refused' in normalized) refused.push({ spot, reason: normalized.refused })
    else if (normalized.changed) texts.push({ spot, texts: normalized.texts })
    return 'refused' in normalized || !normalized.changed
  })
  const highest = Number(rows[0]?.['highest'])
  const unread = highest > Number(rows[0]?.['number'])
  if (unread && staying[0] !== rows[0]) return false
  let next = Math.max(0, highest) + 1
  for (const [position, row] of staying.entries()) {
    const number = position === 0 ? 0 : next++
    const chained = position === 0 && (staying.length > 1 || unread)
    const same = number === Number(row['number']) && chained === (row['chained'] === 'yes')
    if (!same) numbers.push({ spot: row['spot'] ?? '', number, chained })
  }
  return true
}
