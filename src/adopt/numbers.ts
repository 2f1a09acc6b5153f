import { countsUpdates, numberTriggers } from '../numbers/sql/triggers'
import type { NumberDeclaration } from '../registry/registry'
import type { Query, TableState } from '../sql/catalog'
import { qualified, quote } from '../sql/identifier'
import { allEqual, beforeStart, byNumberDown, scopeOf } from '../numbers/sql/fragments'
import type { NumberTable } from '../sql/numbers'
import { isBusyError, serverError, SQLSTATE } from '../sql/sqlstate'
import { field, tableName } from '../sql/text-table'
import { makeFunctions } from '../sql/trigger-set'
import { dropScopes, makeScopes } from '../numbers/sql/scopes'
import type { AdoptStep, PlannedStep } from './options'
import { AdoptionError, type AdoptSession, Later } from './session'
import {
  type AdoptionFacts,
  alterTable,
  analyzeTable,
  compareKey,
  lockInOrder,
  nameOf,
  type OrderedTable,
  own,
  vacuumTable,
} from './table'
import { refuseNullRows, requireAdoptable } from './refusals'
import { declaredTypes, findTable } from './target'
import {
  beginState,
  createAdoptions,
  dropFilled,
  finishWork,
  goOn,
  GUARD_FIRST,
  keyInRow,
  makeIndex,
  planRequired,
  requireNotNull,
  standsOf,
  storedState,
  type Work,
  type WorkRun,
  type WorkState,
} from './work'

/** A table whose rows get their numbers while others write. */
interface NumberedTable extends OrderedTable {
  readonly number: NumberTable & { readonly schema: string }
}

/** The indexes that only the adoption needs. One finds rows without a number, the other the highest of a scope. */
const withoutNumber = (on: NumberedTable): string => nameOf(on, 'unnumbered')

const ofNumbers = (on: NumberedTable): string => nameOf(on, 'numbered')

/** Creates the column, the table of scopes and the triggers. The command numbers the rows. */
function beginNumbers(on: NumberedTable, hasColumn: boolean): string[] {
  const { number } = on
  return [
    ...alterTable(on, [
      hasColumn ? `ALTER ${quote(number.number)} DROP NOT NULL` : `ADD ${quote(number.number)} ${number.type}`,
    ]),
    makeScopes(number, false),
    ...numberTriggers(number, true).create,
    // The command may skip the user's triggers, but this trigger must count its writes too.
    ...alterTable(on, number.count ? [`ENABLE ALWAYS TRIGGER ${quote(countsUpdates(number))}`] : []),
  ]
}

/** The indexes of the adoption. Their creation fails only if a number exists twice in a scope. */
function helpingIndexes(on: NumberedTable): { readonly name: string; readonly create: string }[] {
  const { number, primary } = on
  const [table, column] = [tableName(on.table), quote(number.number)]
  const scoped = [...number.scope.map(({ name }) => quote(name)), column].join(', ')
  return [
    {
      name: withoutNumber(on),
      create:
        `CREATE INDEX CONCURRENTLY ${quote(withoutNumber(on))} ON ${table} (${primary.map(quote).join(', ')}) ` +
        `WHERE ${column} IS NULL`,
    },
    {
      name: ofNumbers(on),
      create: `CREATE UNIQUE INDEX CONCURRENTLY ${quote(ofNumbers(on))} ON ${table} (${scoped}) WHERE ${column} IS NOT NULL`,
    },
  ]
}

/** Creates the unique index over scope and number as TypeORM does, while others write. */
function createNumberIndex({ number }: NumberedTable): string {
  const columns = [...number.scope.map(({ name }) => name), number.number].map(quote).join(', ')
  return `CREATE UNIQUE INDEX CONCURRENTLY ${quote(number.index)} ON ${tableName(number)} (${columns})`
}

/**
 * Locks rows that have no number, in key order, and skips rows that another session has locked.
 *
 * @param after whether $1, … are the key of the preceding row; otherwise the range begins with the first row
 */
const lockUnnumbered = (on: NumberedTable, limit: number, after: boolean): string =>
  lockInOrder(on, [], [`${field('t', on.number.number)} IS NULL`, ...(after ? [compareKey(on, '>', 1)] : [])], limit)

/**
 * Numbers the rows at the spots $1, which are locked, after the highest number of their scope. The statement sees all
 * that was committed before. No other session assigns numbers meanwhile.
 */
function numberLocked(on: NumberedTable): string {
  const { number, primary } = on
  const [column, scope] = [quote(number.number), scopeOf(number, 'h')]
  const same = allEqual(scopeOf(number, 't'), scope)
  const by = [...scope, ...primary.map((name) => field('h', name))]
  const partition = scope.length === 0 ? '' : `PARTITION BY ${scope.join(', ')} `
  return `WITH placed AS MATERIALIZED (
  SELECT h.ctid AS spot,
    greatest((
      SELECT t.${column} FROM ${own(on)}
       WHERE ${[...same, `t.${column} IS NOT NULL`].join(' AND ')} ORDER BY ${byNumberDown(number, 't')} LIMIT 1
    ), ${beforeStart(number)}) OPERATOR(pg_catalog.+) pg_catalog.row_number() OVER (
      ${partition}ORDER BY ${by.slice(scope.length).join(', ')}) AS number
    FROM ONLY ${tableName(on.table)} AS h
   WHERE h.ctid OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.tid[]) AND h.${column} IS NULL)
UPDATE ${own(on)} SET ${column} = p.number
  FROM placed AS p
 WHERE t.ctid OPERATOR(pg_catalog.=) p.spot AND t.ctid OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.tid[])`
}

/** Replaces the functions of the triggers with the final ones. Makes no trigger. Only `count` takes a table lock. */
function finishNumbers(on: NumberedTable): string[] {
  const { number } = on
  const relation = tableName(on.table)
  const replaced = numberTriggers(number).functions.map((one) => ({ ...one, schema: on.table.schema, relation }))
  return [
    ...makeFunctions({ replaced }),
    ...alterTable(on, number.count ? [`ENABLE TRIGGER ${quote(countsUpdates(number))}`] : []),
  ]
}

/** Drops the indexes that only the adoption needed. */
const dropTemporary = (on: NumberedTable): string[] =>
  [withoutNumber(on), ofNumbers(on)].map((name) => `DROP INDEX IF EXISTS ${qualified(on.table.schema, name)}`)

interface NumberState extends WorkState {
  /** Whether the adoption has made the column. */
  readonly made?: boolean
}

type Spot = Readonly<Record<string, string>>

/** A commit costs more than a few rows. */
const NUMBER_BATCH = { first: 500, least: 50 }

/** The most rows that may be left when the last lock is requested. */
const LAST_ROWS = 200

/** After this many attempts, other rows are numbered first. */
const PATIENCE = 3

const LOCKED = 'Somebody has rows locked that have no number.'

/**
 * @throws AdoptionError if the table does not exist or is no ordinary table
 * @throws UnsupportedDatabaseError
 */
export async function findNumber(declaration: NumberDeclaration, query: Query): Promise<NumberWork> {
  const { table, metadata } = declaration
  const { facts, state } = await findTable(query, metadata, tableName(table))
  const primary = metadata.primaryColumns.map(({ databaseName }) => databaseName)
  const on: NumberedTable = {
    table: { schema: facts.schema, table: facts.table, guard: table.triggers },
    number: { ...table, schema: facts.schema },
    primary,
    types: declaredTypes(state, primary),
    owner: facts.owner,
  }
  return new NumberWork(declaration, on, facts, state, await storedState<NumberState>(query, on))
}

/** A number, and its table on this connection. */
class NumberWork implements Work {
  readonly kind = 'number'
  readonly order: readonly AdoptStep[] = GUARD_FIRST
  readonly writes = 'alone'
  readonly said: string
  readonly rules: string
  readonly stands: Work['stands']
  readonly written: Work['written']
  private readonly scope: readonly string[]
  /** Columns that should be NOT NULL but are not yet. */
  private readonly required: readonly string[]

  constructor(
    declaration: NumberDeclaration,
    readonly on: NumberedTable,
    readonly facts: AdoptionFacts,
    private readonly state: TableState,
    readonly stored: NumberState | undefined,
  ) {
    const { table, name, metadata, scope } = declaration
    this.said = `"${name}" of ${metadata.name}`
    this.rules = JSON.stringify([
      table.scope,
      table.number,
      table.type,
      table.count,
      table.reuse,
      table.start,
      table.deleted,
    ])
    this.written = {
      what: 'a row with its number',
      ours: [on.number.index, ...helpingIndexes(on).map((one) => one.name)],
    }
    this.scope = scope.map(({ databaseName }) => databaseName)
    const declared = scope.filter(({ isNullable }) => !isNullable).map(({ databaseName }) => databaseName)
    this.required = [table.number, ...declared].filter(
      (column) => state.columns.find((one) => one.name === column)?.nullable !== false,
    )
    const columns = [...this.scope, table.number]
    const work = { set: numberTriggers(table), indexes: [{ name: table.index, columns }] }
    this.stands = standsOf(state, work, this.required)
  }

  refuse(): void {
    requireAdoptable(this.facts, tableName(this.on.table))
  }

  /** After its commit, a row that leaves its scope loses its number, and only rows with a number count. */
  async begin(run: WorkRun): Promise<AdoptStep> {
    const { session } = run
    const { on } = this
    const column = this.state.columns.find(({ name }) => name === on.number.number)
    if (column && column.type !== on.number.type) this.refuseColumn(`is of type ${column.type}`)
    const numbered = `SELECT FROM ${own(on)} WHERE ${field('t', on.number.number)} IS NOT NULL LIMIT 1`
    if (column && on.number.count && (await session.query(numbered)).length > 0) {
      this.refuseColumn('holds numbers that nobody has counted')
    }
    await this.refuseNulls(session)
    await beginState(run, this, { made: !column })
    return await session.locked({ on, step: 'begin', mode: 'ACCESS EXCLUSIVE' }, async () => {
      await session.all(beginNumbers(on, column !== undefined))
      return await goOn(session, on, 'fill')
    })
  }

  private refuseColumn(why: string): never {
    throw new AdoptionError(
      'unsupported',
      `The column of ${this.said} in ${tableName(this.on.table)} ${why}. Use a migration.`,
    )
  }

  private async refuseNulls({ query }: AdoptSession): Promise<void> {
    const told = { what: 'which is in the scope of a number, ', todo: 'Give them a value or delete them.' }
    await refuseNullRows(query, this.on, this.scope, told)
  }

  private hasValidIndex(name: string): boolean {
    return this.state.indexes.some((one) => one.name === name && one.valid)
  }

  /** Numbers rows in key order, batch by batch, until only locked rows are left. */
  async fill(run: WorkRun): Promise<AdoptStep> {
    const { session } = run
    const { on } = this
    for (const { name, create } of helpingIndexes(on)) {
      if (this.hasValidIndex(name)) continue
      await makeIndex(session, on, name, create).catch((error: unknown) => {
        if (serverError(error)?.code !== SQLSTATE.uniqueViolation) throw error
        throw new AdoptionError(
          'unsupported',
          `Rows of ${tableName(on.table)} have one number in ${quote(on.number.number)} twice. ` +
            `typeorm-unique-text doctor names them: give one of each another number, or NULL.`,
          error,
        )
      })
    }
    await this.numberRest(run, 'fill')
    await session.query(vacuumTable(on))
    await session.query(analyzeTable(on))
    return await goOn(session, on, 'index')
  }

  /** Passes once over all rows without a number. @returns how many rows are left, counted up to LAST_ROWS + 1 */
  private async numberRest({ session, options, counts }: WorkRun, step: 'fill' | 'guard'): Promise<number> {
    const { on } = this
    const before = counts.filled
    const total = await this.unnumbered(session, 10_000_000)
    let [after, attempts]: [readonly string[], number] = [[], 0]
    await session.atPace(NUMBER_BATCH, async (limit) => {
      const { spots, done } = await this.tryBatch(session, after, limit, attempts)
      attempts = done ? 0 : attempts + 1
      if (done || attempts >= PATIENCE) after = spots.slice(-1).flatMap((last) => keyInRow(on, last))
      if (!done) {
        await session.rest(attempts)
        return { done: undefined, more: true }
      }
      counts.filled += spots.length
      options.onProgress?.({ step, fraction: (counts.filled - before) / Math.max(total, 1), rows: counts.filled })
      // Rows that clients write meanwhile wait for the next round, or this round might never end.
      return { done: spots.length, more: spots.length === limit && counts.filled - before < total }
    })
    return await this.unnumbered(session, LAST_ROWS + 1)
  }

  /** Counts the rows without a number, up to the limit. */
  private async unnumbered({ query }: AdoptSession, limit: number): Promise<number> {
    const [row] = await query<{ rows: string }>(`SELECT pg_catalog.count(*)::pg_catalog.text AS rows FROM (
  SELECT FROM ${own(this.on)} WHERE ${field('t', this.on.number.number)} IS NULL LIMIT ${limit}) AS r`)
    return Number(row?.rows ?? 0)
  }

  /** @returns the rows; `done` is false if another session has locked a count or assigned its number */
  private async tryBatch(session: AdoptSession, after: readonly string[], limit: number, attempts: number) {
    const { on } = this
    let spots: readonly Spot[] = []
    try {
      await session.together(async () => {
        spots = await session.query<Spot>(lockUnnumbered(on, limit, after.length > 0), [...after])
        await this.numberSpots(session, spots)
      })
      return { spots, done: true }
    } catch (error) {
      const { code, constraint = '' } = serverError(error) ?? {}
      // Another session has locked the count of a scope, or assigned a number by hand. A unique index of the user may
      // refuse that number before ours does, and an index over other columns refuses it each time.
      const mends =
        code === SQLSTATE.uniqueViolation
          ? attempts < PATIENCE || this.written.ours.includes(constraint)
          : isBusyError(error)
      if (!mends) throw error
      return { spots, done: false }
    }
  }

  /** A separate statement, because it must see the current values of rows that an earlier statement has locked. */
  private async numberSpots({ query }: AdoptSession, spots: readonly Spot[]): Promise<void> {
    if (spots.length > 0) await query(numberLocked(this.on), [spots.map(({ spot }) => spot)])
  }

  async index({ session }: WorkRun): Promise<AdoptStep> {
    const { on } = this
    const { index } = on.number
    if (!this.hasValidIndex(index)) await makeIndex(session, on, index, createNumberIndex(on))
    return await goOn(session, on, 'guard')
  }

  /** @returns how many rows got a number; other sessions have locked the rest, or it must be repeated */
  private async numberUnderLock(session: AdoptSession): Promise<number> {
    const spots = await session.query<Spot>(lockUnnumbered(this.on, LAST_ROWS * 10, false))
    await this.numberSpots(session, spots)
    return spots.length
  }

  /** After the commit of its transaction, every row gets its number when it is written. */
  async guard(run: WorkRun): Promise<AdoptStep> {
    const { session, counts } = run
    const { on } = this
    const prepare = async (): Promise<void> => {
      for (let rounds = 1; (await this.numberRest(run, 'guard')) > LAST_ROWS; rounds += 1) await session.rest(rounds)
    }
    const lock = { on, step: 'guard', mode: 'SHARE ROW EXCLUSIVE', prepare } as const
    const last = await session.locked(lock, async (inTime) => {
      const left = await this.unnumbered(session, LAST_ROWS * 10 + 1)
      const numbered = await this.numberUnderLock(session)
      if (numbered < left) throw new Later(LOCKED)
      inTime()
      await session.all(finishNumbers(on))
      await goOn(session, on, 'check')
      return numbered
    })
    counts.filled += last
    return 'check'
  }

  async check(run: WorkRun): Promise<AdoptStep> {
    return await requireNotNull(run, this.on, this.required, 'clean', async () => await this.mend(run))
  }

  /**
   * Numbers rows that were written past the triggers. Until then, their scopes accept no other row, because a trigger
   * reads NULL as the highest number.
   */
  private async mend({ session, counts }: WorkRun): Promise<AdoptStep> {
    const { on } = this
    await this.refuseNulls(session)
    while ((await this.unnumbered(session, 1)) > 0) {
      const mended = await session.locked({ on, step: 'check', mode: 'SHARE ROW EXCLUSIVE' }, async () => {
        const numbered = await this.numberUnderLock(session)
        if (numbered === 0 && (await this.unnumbered(session, 1)) > 0) throw new Later(LOCKED)
        return numbered
      })
      counts.filled += mended
    }
    return 'check'
  }

  async clean({ session }: WorkRun): Promise<AdoptStep> {
    const { on } = this
    await finishWork(session, on, 'clean', dropTemporary(on))
    await session.query(analyzeTable(on))
    return 'done'
  }

  plan(): PlannedStep[] {
    const { on } = this
    const hasColumn = this.state.columns.some(({ name }) => name === on.number.number)
    const ruled = hasColumn ? [...new Set([on.number.number, ...this.required])] : this.required
    const lockAndNumber = [lockUnnumbered(on, NUMBER_BATCH.first, true), numberLocked(on)]
    return [
      { step: 'begin', lock: undefined, statements: createAdoptions(on) },
      { step: 'begin', lock: 'ACCESS EXCLUSIVE', statements: beginNumbers(on, hasColumn) },
      { step: 'fill', lock: undefined, statements: helpingIndexes(on).map(({ create }) => create) },
      { step: 'fill', lock: undefined, statements: [...lockAndNumber, vacuumTable(on), analyzeTable(on)] },
      { step: 'index', lock: undefined, statements: [createNumberIndex(on)] },
      { step: 'guard', lock: 'SHARE ROW EXCLUSIVE', statements: finishNumbers(on) },
      ...planRequired(on, ruled),
      { step: 'clean', lock: 'ACCESS EXCLUSIVE', statements: dropTemporary(on) },
      { step: 'clean', lock: undefined, statements: [analyzeTable(on)] },
    ]
  }

  /** The column stays, because numbers are data, unless an unfinished adoption made it. */
  dropAll(): string[] {
    const { on } = this
    const { number, table } = on
    const column = quote(number.number)
    const checks = dropFilled(on, 1 + number.scope.length)
    const made = this.stored?.made === true
    return [
      ...numberTriggers(number).drop,
      dropScopes(number),
      ...dropTemporary(on),
      `DROP INDEX IF EXISTS ${qualified(table.schema, number.index)}`,
      ...alterTable(on, [...checks, made ? `DROP COLUMN IF EXISTS ${column}` : `ALTER ${column} DROP NOT NULL`]),
    ]
  }
}
