import type { EntityMetadata } from 'typeorm'
import { claimBody } from '../names/sql/take'
import { nameTriggersOf } from '../names/sql/triggers'
import { holderTable } from '../names/sql/holder-table'
import { namesText } from '../registry/names'
import { dataSourceOf, type NameDeclaration, namesOfTable } from '../registry/registry'
import { findDrift, workDrift } from '../schema/readiness'
import { triggerWorks, wantedSets } from '../schema/table'
import { addLookup, type LookupIndex, type Query, tableState, type TableState } from '../sql/catalog'
import { literal, quote, unnest } from '../sql/identifier'
import {
  hasNamedKey,
  holderKey,
  type HolderTable,
  namedSet,
  nameField,
  namesOfRow,
  namesTableOf,
  newRows,
  pathOf,
} from '../names/sql/fragments'
import { type NamesColumn, refusedNames } from '../sql/names'
import { isBusyError, serverError, SQLSTATE } from '../sql/sqlstate'
import { equal, field, op, tableName } from '../sql/text-table'
import { savepoint } from '../sql/transaction-commands'
import { dropFunctions, makeFunctions } from '../sql/trigger-set'
import type { AdoptStep, PlannedStep } from './options'
import { AdoptionError, type AdoptSession } from './session'
import {
  type Adopting,
  type AdoptionFacts,
  alterTable,
  compareKey,
  keyTexts,
  lockInOrder,
  nameOf,
  objectOf,
  type OrderedTable,
  own,
  ownAlone,
} from './table'
import { KEYS_NAMED, normalizeStored, ownConstraint, refuseNullRows, requireAdoptable } from './refusals'
import { declaredTypes, findTable } from './target'
import {
  beginState,
  createAdoptions,
  createLookup,
  dropFilled,
  forgetState,
  goOn,
  GUARD_FIRST,
  keyInRow,
  makeLookup,
  planRequired,
  requireNotNull,
  standsOf,
  storedState,
  type Work,
  type WorkRun,
  type WorkState,
} from './work'

/*
 * Adopts the names of a table. Triggers claim the name of each row that clients write, and the command meanwhile claims
 * the names of existing rows in batches. Rows that another session has locked, and names that another row holds, are
 * noted and tried again.
 */

/** A table whose rows get their names claimed while others write. */
interface NamedTable extends OrderedTable {
  readonly holder: HolderTable
  /** The table of names, as the session finds it. */
  readonly names: string
}

/**
 * The command inserts rows here. A trigger of the batch runs as the table's owner, who may write held names: it claims
 * the names of these rows and empties the batch.
 */
const claimBatchOf = (on: Adopting): string => objectOf(on, 'batch')

/** The rows to look at again, by `key`, in the order of `seq`. `kind` is `busy`, `clash` or `refused`. */
const leftRowsOf = (on: Adopting): string => objectOf(on, 'left')

/** The command inserts ranges of ids here. A trigger releases the table's names with ids above `low`, up to `high`. */
const releasedOf = (on: Adopting): string => objectOf(on, 'released')

const FUNCTIONS = ['claim', 'release'] as const

const nameColumnsOf = ({ holder }: NamedTable): string[] => holder.names.map(({ column }) => column)

/** Creates the objects that only the adoption needs. Blocks neither readers nor writers of the adopted table. */
function createClaims(on: NamedTable): string[] {
  const { holder } = on
  const [batch, left, released] = [claimBatchOf(on), leftRowsOf(on), releasedOf(on)]
  const columns = [...new Set([...on.primary, ...nameColumnsOf(on)])].map((name) => field('t', name))
  const { of } = holder
  const held = (['holder', 'property', 'key'] as const).map((column) => nameField(of, 'n', column))
  const noteClash = `
          INSERT INTO ${left} (key, property, kind, holder, holder_property, holder_key)
          SELECT one.key, one.property, 'clash', ${held.join(', ')}
          FROM ${namesTableOf(holder)} AS n WHERE ${equal(nameField(of, 'n', 'id'), 'found_id')};`
  const release = `
BEGIN
  DELETE FROM ${namesTableOf(holder)} AS n USING ${newRows(holder)} AS r
  WHERE ${equal(nameField(of, 'n', 'holder'), literal(holder.holder))}
    AND ${nameField(of, 'n', 'id')} ${op('>')} r.low AND ${nameField(of, 'n', 'id')} ${op('<=')} r.high
    AND ${equal(nameField(of, 'n', 'state'), `coalesce(r.state, ${nameField(of, 'n', 'state')})`)};
  DELETE FROM ${released};
  RETURN NULL;
END
`
  const source = (suffix: (typeof FUNCTIONS)[number], body: string) => ({
    schema: on.table.schema,
    name: nameOf(on, suffix),
    body,
    path: pathOf(holder),
    writes: { schema: holder.of.schema, name: holder.of.table },
    relation: tableName(on.table),
  })
  const runs = (suffix: (typeof FUNCTIONS)[number], table: string): string =>
    `CREATE TRIGGER ${quote(nameOf(on, suffix))} AFTER INSERT ON ${table} REFERENCING NEW TABLE AS ${newRows(holder)} ` +
    `FOR EACH STATEMENT EXECUTE FUNCTION ${objectOf(on, suffix)}()`
  return [
    ...dropTemporary(on),
    `CREATE TABLE ${batch} AS SELECT ${columns.join(', ')} FROM ${tableName(on.table)} AS t WITH NO DATA`,
    `CREATE TABLE ${left} (seq pg_catalog.int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY, ` +
      `key pg_catalog.jsonb NOT NULL, property pg_catalog.text, kind pg_catalog.text NOT NULL, ` +
      `reason pg_catalog.text, holder pg_catalog.text, holder_property pg_catalog.text, holder_key pg_catalog.jsonb)`,
    `CREATE TABLE ${released} (low pg_catalog.int8, high pg_catalog.int8, state pg_catalog.text)`,
    ...ownAlone(on, [batch, left, released]),
    ...makeFunctions({
      fresh: [source('claim', claimBody(holder, noteClash, `\n  DELETE FROM ${batch};`)), source('release', release)],
    }),
    runs('claim', batch),
    runs('release', released),
  ]
}

const dropTemporary = (on: NamedTable): string[] => [
  `DROP TABLE IF EXISTS ${[claimBatchOf(on), leftRowsOf(on), releasedOf(on)].join(', ')}`,
  ...dropFunctions(FUNCTIONS.map((suffix) => ({ schema: on.table.schema, name: nameOf(on, suffix) }))),
]

/** Creates the triggers. After their commit, they claim the names of a new row, and each changed name. */
const beginNames = ({ holder }: NamedTable): string[] => [...nameTriggersOf(holder, true).create]

/**
 * Replaces the functions of the existing triggers. It makes no trigger and does not lock the table.
 *
 * @param adopting whether the triggers allow for rows whose names are not claimed yet
 */
const changeTriggers = (on: NamedTable, adopting: boolean): string[] => {
  const { functions, path, writes } = nameTriggersOf(on.holder, adopting)
  const { schema } = on.holder
  const replaced = functions.map((one) => ({ ...one, schema, path, writes, relation: tableName(on.holder) }))
  return makeFunctions({ replaced })
}

const nameTexts = (on: NamedTable): string[] =>
  nameColumnsOf(on).map((name, index) => `${field('t', name)}::pg_catalog.text AS c${index}`)

/** Conditions for a range of keys: up to the key in $first, … and, with `after`, above the key that follows it. */
const withinKeys = (on: NamedTable, first: number, after: boolean): string[] => [
  ...(after ? [compareKey(on, '>', first + on.types.length)] : []),
  compareKey(on, '<=', first),
]

/**
 * Locks rows in key order, up to the key $1, …, and skips rows that another session has locked.
 *
 * @param after whether the key of the preceding row follows; otherwise the range begins with the first row
 */
const lockRows = (on: NamedTable, limit: number, after: boolean): string =>
  lockInOrder(on, nameTexts(on), withinKeys(on, 1, after), limit)

/** Notes the rows that `lockRows` skipped. $1 are the spots of the locked rows, and the keys follow as there. */
const noteBusy = (on: NamedTable, after: boolean): string =>
  `INSERT INTO ${leftRowsOf(on)} (key, kind)
SELECT ${holderKey(on.holder, 't')}, 'busy' FROM ${own(on)}
 WHERE ${[...withinKeys(on, 2, after), 't.ctid OPERATOR(pg_catalog.<>) ALL ($1::pg_catalog.tid[])'].join(' AND ')}`

/** Claims the names of the locked rows at the spots $1, and notes clashes. */
function claimRows(on: NamedTable): string {
  const columns = [...new Set([...on.primary, ...nameColumnsOf(on)])]
  return `INSERT INTO ${claimBatchOf(on)} (${columns.map(quote).join(', ')})
SELECT ${columns.map((name) => field('t', name)).join(', ')} FROM ${own(on)} WHERE t.ctid OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.tid[])`
}

/** Deletes and returns the first notes up to $1, at most $2 of them. */
const popNotes = (on: NamedTable): string => {
  const left = leftRowsOf(on)
  return `WITH taken AS (DELETE FROM ${left} AS l WHERE l.seq OPERATOR(pg_catalog.=) ANY (ARRAY(
  SELECT o.seq FROM ${left} AS o WHERE o.seq OPERATOR(pg_catalog.<=) $1::pg_catalog.int8 ORDER BY o.seq LIMIT $2::pg_catalog.int8))
RETURNING l.key::pg_catalog.text AS key)
SELECT t.key FROM taken AS t`
}

const joinedByKey = (on: NamedTable): string => hasNamedKey(on.holder, 't', 'l.key').join(' AND ')

/** Notes the keys $1, as JSON, if their rows exist. */
const noteKeys = (on: NamedTable): string =>
  `INSERT INTO ${leftRowsOf(on)} (key, kind)
SELECT l.key, 'busy' FROM pg_catalog.unnest($1::pg_catalog.jsonb[]) AS l (key)
 WHERE EXISTS (SELECT FROM ${own(on)} WHERE ${joinedByKey(on)})`

const analyzeNames = ({ names }: NamedTable): string => `ANALYZE ${names}`

interface NamesState extends WorkState {
  /** The key up to which rows were claimed or noted. */
  readonly after?: readonly string[]
  /** The key of the last row to claim. */
  readonly upTo?: readonly string[]
  /** Whether every row up to `upTo` was claimed or noted once. */
  readonly swept?: boolean
  /** Whether the rows held their names before and have lost some. */
  readonly lost?: boolean
}

/** A row that this session has locked, with its key and its texts. */
type RowToClaim = Readonly<Record<string, string | null>> & { readonly spot: string }

/** A row that is left, in the form in which it is noted and reported. */
interface LeftName {
  readonly kind: 'clash' | 'refused' | 'busy'
  readonly key: string
  readonly property: string | null
  readonly reason: string | null
  readonly holder: string | null
  readonly holder_property: string | null
  readonly holder_key: string | null
}

type LeftToWrite = Partial<LeftName> & { readonly spot: string; readonly kind: LeftName['kind'] }

/** The written rows, at their new spots, and notes of those that could not be written. */
interface WrittenNames {
  readonly spots: readonly string[]
  readonly notes: readonly LeftToWrite[]
}

/** The new texts of a row. */
interface ChangedNames {
  readonly spot: string
  readonly texts: readonly (string | null)[]
}

const NAME_BATCH = { first: 200, least: 20 }

/** After this many attempts, other rows are claimed first. */
const MOST_TRIES = 4

/** The number of ids of names that one statement covers. */
const RELEASED_ROWS = 1_000n

/**
 * @param metadata the metadata of the table's root entity
 * @throws AdoptionError if the table does not exist, or the relation is no ordinary table
 * @throws UnsupportedDatabaseError
 */
export async function findNames(metadata: EntityMetadata, query: Query): Promise<NamesWork> {
  const holder = holderTable(metadata)
  const { facts, state } = await findTable(query, metadata, tableName(holder))
  const primary = holder.primary.map(({ name }) => name)
  const on: NamedTable = {
    table: { schema: facts.schema, table: facts.table, guard: namedSet(holder.table, 'names') },
    holder,
    primary,
    types: declaredTypes(state, primary),
    names: tableName(holder.of),
    owner: facts.owner,
  }
  return new NamesWork(metadata, on, facts, state, await storedState<NamesState>(query, on))
}

/** A table on this connection whose rows are to hold names. */
class NamesWork implements Work {
  readonly kind = 'names'
  readonly order: readonly AdoptStep[] = GUARD_FIRST
  readonly said: string
  readonly rules: string
  readonly stands: Work['stands']
  readonly writes: Work['writes']
  readonly written: Work['written']
  /** Names, in the order of `holder.names`: the name at i is the column `c<i>` of a row that was read. */
  private readonly names: readonly NameDeclaration[]
  private readonly lookups: readonly LookupIndex[]
  /** Columns that are declared NOT NULL but still allow NULL. */
  private readonly required: readonly string[]

  constructor(
    private readonly metadata: EntityMetadata,
    readonly on: NamedTable,
    readonly facts: AdoptionFacts,
    private readonly state: TableState,
    readonly stored: NamesState | undefined,
  ) {
    const { holder } = on
    this.names = namesOfTable(metadata)
    this.lookups = this.names.map(({ lookup: name, text }) => ({
      rows: { schema: facts.schema, table: facts.table },
      name,
      column: text.column.databaseName,
    }))
    this.said = `the names of ${metadata.name}`
    this.rules = JSON.stringify([holder.holder, holder.primary, holder.names, holder.of.table])
    const normalizes = this.names.some(({ text }) => text.normalizer.name !== 'none')
    this.writes = normalizes ? { under: 'those of names have to run' } : 'nothing'
    this.written = { what: 'a row with its normalized name', ours: [holder.of.index] }
    this.required = this.names
      .filter(({ text }) => !text.column.isNullable)
      .map(({ text }) => text.column.databaseName)
      .filter((name) => state.columns.find((one) => one.name === name)?.nullable === true)
    this.stands = standsOf(state, { set: nameTriggersOf(holder) }, this.required)
  }

  refuse(): void {
    // A batch is another table than the rows, so Citus could not plan the claim of even a local table's names.
    requireAdoptable(this.facts, tableName(this.on.table), this.facts.distribution !== undefined)
  }

  /** Whether a row lacks a name, because the table of names was emptied, or rows were written past the triggers. */
  async lacks(query: Query): Promise<boolean> {
    const { on } = this
    const { of, holder } = on.holder
    const name = (column: NamesColumn): string => nameField(of, 'n', column)
    const isHeld = [
      equal(name('key'), holderKey(on.holder, 't')),
      equal(name('holder'), literal(holder)),
      equal(name('state'), `'held'`),
      ...(['namespace', 'property', 'text'] as const).map((column) => equal(name(column), `v.${column}`)),
    ]
    const unclaimed = `SELECT EXISTS (SELECT FROM ${own(on)}
      ${namesOfRow(on.holder)}
    WHERE v.text IS NOT NULL AND NOT EXISTS (SELECT FROM ${on.names} AS n WHERE ${isHeld.join(' AND ')})) AS found`
    const rows = await query(unclaimed).catch((error: unknown) => {
      if (serverError(error)?.code === SQLSTATE.undefinedTable) return [{ found: true }]
      throw error
    })
    return (rows as readonly { found: boolean }[])[0]?.found === true
  }

  /** After its commit, the triggers claim what clients write, and allow for rows whose names are not claimed yet. */
  async begin(run: WorkRun): Promise<AdoptStep> {
    const { session } = run
    const { on } = this
    for (const { text, name } of this.names) {
      const column = text.column.databaseName
      if (this.state.columns.some((one) => one.name === column)) continue
      throw new AdoptionError('unsupported', `${tableName(on.table)} has no column for "${name}". Add it first.`)
    }
    await this.refuseNulls(session)
    await makeNamesTable(session, this.metadata, on.owner)
    await beginState(run, this, { lost: this.stands === 'ready' })
    await session.all(createClaims(on))
    // Without triggers, nobody has released the names of rows that were changed or deleted since.
    if (this.stands === 'none') await this.deleteNames(session, 'begin', 'held')
    return await session.locked({ on, step: 'begin', mode: 'SHARE ROW EXCLUSIVE' }, async () => {
      await session.all(this.stands === 'ready' ? changeTriggers(on, true) : beginNames(on))
      return await goOn(session, on, 'fill', { after: [] })
    })
  }

  private async refuseNulls({ query }: AdoptSession): Promise<void> {
    const todo = 'Give them a name or delete them, or declare the property nullable.'
    await refuseNullRows(query, this.on, this.required, { todo })
  }

  /** Deletes the names of the table, in batches. @param state the state of these names, or NULL for any state */
  private async deleteNames(session: AdoptSession, step: 'begin' | 'abandon', state: string | null): Promise<void> {
    const { on } = this
    const { of, holder } = on.holder
    const id = nameField(of, 'n', 'id')
    const [found] = await session
      .query<Record<'low' | 'high', string | null>>(
        `SELECT pg_catalog.min(${id})::pg_catalog.text AS low, pg_catalog.max(${id})::pg_catalog.text AS high
  FROM ${on.names} AS n WHERE ${equal(nameField(of, 'n', 'holder'), literal(holder))}
   AND ($1::pg_catalog.text IS NULL OR ${equal(nameField(of, 'n', 'state'), '$1::pg_catalog.text')})`,
        [state],
      )
      .catch((error: unknown) => {
        if (serverError(error)?.code === SQLSTATE.undefinedTable) return []
        throw error
      })
    if (found?.low === undefined || found.low === null) return
    const release = `INSERT INTO ${releasedOf(on)} (low, high, state) VALUES ($1::pg_catalog.int8, $2::pg_catalog.int8, $3::pg_catalog.text)`
    const high = BigInt(found.high ?? found.low)
    for (let low = BigInt(found.low) - 1n; low < high; low += RELEASED_ROWS) {
      const values = [String(low), String(low + RELEASED_ROWS), state]
      await session.patiently(step, async () => await session.query(release, values))
      await session.breathe()
    }
  }

  /** Claims the names that are not claimed yet, until only those are left that a person has to decide. */
  async fill(run: WorkRun): Promise<AdoptStep> {
    const { session } = run
    const { on, stored } = this
    if (stored?.swept !== true) {
      // Rows that are written later hold their names.
      const highest = `SELECT ${keyTexts(on).join(', ')} FROM ${own(on)} ORDER BY ${on.primary.map((name) => `${field('t', name)} DESC`).join(', ')} LIMIT 1`
      const upTo = stored?.upTo ?? (await session.query<RowToClaim>(highest)).flatMap((row) => keyInRow(on, row))
      await goOn(session, on, 'fill', { upTo })
      if (upTo.length > 0) await this.claimAll(run, stored?.after ?? [], upTo)
      await goOn(session, on, 'fill', { swept: true })
    }
    await session.query(analyzeNames(on))
    for (let rounds = 1; (await this.claimLeft(run)) > 0; rounds += 1) await session.rest(rounds)
    const left = stored?.lost === true ? undefined : await this.errorForLeft(session)
    if (left) throw left
    return await goOn(session, on, 'index')
  }

  /** Claims the names of all rows in key order, and stores the position. Rows locked by another session are noted. */
  private async claimAll(run: WorkRun, first: readonly string[], upTo: readonly string[]): Promise<void> {
    const { session, options, counts } = run
    const { on } = this
    let [after, attempts] = [first, 0]
    await session.atPace(NAME_BATCH, async (size) => {
      const limit = Math.ceil(size / 2 ** attempts)
      const locked = await tried(async () => await this.claimPage(run, after, upTo, limit))
      if (!locked) {
        attempts += 1
        if (attempts > MOST_TRIES) after = (await this.passOver(session, after, upTo)) ?? after
        await session.rest(attempts)
        return { done: undefined, more: true }
      }
      attempts = 0
      const fraction = Math.min(counts.filled / Math.max(this.facts.rows, 1), 1)
      options.onProgress?.({ step: 'fill', fraction, rows: counts.filled })
      const last = locked.at(-1)
      if (last) after = keyInRow(on, last)
      return { done: locked.length, more: locked.length === limit }
    })
  }

  private async claimPage(
    run: WorkRun,
    after: readonly string[],
    upTo: readonly string[],
    limit: number,
  ): Promise<readonly RowToClaim[]> {
    const { session } = run
    const { on } = this
    return await session.together(async () => {
      const rows = await session.query<RowToClaim>(lockRows(on, limit, after.length > 0), [...upTo, ...after])
      const last = rows.at(-1)
      const end = last && rows.length === limit ? keyInRow(on, last) : upTo
      // Notes the rows between them that another session has locked.
      await session.query(noteBusy(on, after.length > 0), [rows.map(({ spot }) => spot), ...end, ...after])
      await this.claimRowsOf(run, rows)
      await goOn(session, on, 'fill', { after: end })
      return rows
    })
  }

  /** If another session locks a name that one of the next rows needs, all of these rows are noted and claimed later. */
  private async passOver(
    session: AdoptSession,
    after: readonly string[],
    upTo: readonly string[],
  ): Promise<readonly string[] | undefined> {
    const { on } = this
    return await session.patiently('fill', async () => {
      const sql = lockRows(on, NAME_BATCH.least, after.length > 0)
      const last = (await session.query<RowToClaim>(sql, [...upTo, ...after])).at(-1)
      if (!last) return undefined
      await session.query(noteBusy(on, after.length > 0), [[], ...keyInRow(on, last), ...after])
      return keyInRow(on, last)
    })
  }

  /**
   * Claims the names of locked rows. A row that the normalizer changes is written first; one that it refuses is kept,
   * deleted or noted. The trigger of the batch notes clashes. A clash of a written row is an error 23505.
   */
  private async claimRowsOf({ session, options, counts }: WorkRun, rows: readonly RowToClaim[]): Promise<void> {
    const { on } = this
    const [changed, claimed, gone, notes]: [ChangedNames[], string[], string[], LeftToWrite[]] = [[], [], [], []]
    const texts = this.names.map(({ text }) => text)
    for (const row of rows) {
      const { spot } = row
      const stored = texts.map((_, index) => row[`c${index}`] ?? null)
      const normalized = normalizeStored(texts, stored)
      if ('refused' in normalized) {
        if (options.refused === 'delete') gone.push(spot)
        else if (options.refused === 'keep') claimed.push(spot)
        else notes.push({ spot, kind: 'refused', property: normalized.column.databaseName, reason: normalized.refused })
      } else if (normalized.changed) changed.push({ spot, texts: normalized.texts })
      else claimed.push(spot)
    }
    const isSpot = 't.ctid OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.tid[])'
    if (gone.length > 0) await session.query(`DELETE FROM ${own(on)} WHERE ${isSpot}`, [gone])
    if (changed.length > 0) {
      const written = await this.writeAll(session, changed)
      // The triggers of the table skip a name that the UPDATE does not change and another row holds.
      claimed.push(...written.spots)
      notes.push(...written.notes)
    }
    if (claimed.length > 0) await session.query(claimRows(on), [claimed])
    if (notes.length > 0) {
      const members = ['spot', 'kind', 'property', 'reason', 'holder', 'holder_property', 'holder_key'] as const
      const columns = members.map((member) => notes.map((one) => one[member] ?? null))
      await session.query(
        `INSERT INTO ${leftRowsOf(on)} (key, kind, property, reason, holder, holder_property, holder_key)
SELECT ${holderKey(on.holder, 't')}, c.kind, c.property, c.reason, c.holder, c.holder_property, c.holder_key::pg_catalog.jsonb
  FROM ${unnest(['$1::pg_catalog.tid[]', ...[2, 3, 4, 5, 6, 7].map((index) => `$${index}::pg_catalog.text[]`)])}
    AS c (spot, kind, property, reason, holder, holder_property, holder_key)
  JOIN ${own(on)} ON t.ctid OPERATOR(pg_catalog.=) c.spot
 WHERE ${isSpot}`,
        columns,
      )
    }
    counts.filled += rows.length
    counts.normalized += changed.length
  }

  /** Writes all rows with one statement. If a name is taken, it writes them one by one, and leaves only that row. */
  private async writeAll(session: AdoptSession, changed: readonly ChangedNames[]): Promise<WrittenNames> {
    const all = await this.writeSome(session, changed)
    if (all.notes.length === 0 || changed.length === 1) return all
    const written: { readonly spots: string[]; readonly notes: LeftToWrite[] } = { spots: [], notes: [] }
    for (const one of changed) {
      const { spots, notes } = await this.writeSome(session, [one])
      written.spots.push(...spots)
      written.notes.push(...notes)
    }
    return written
  }

  /** Writes all rows, or none and returns notes. */
  private async writeSome(session: AdoptSession, changed: readonly ChangedNames[]): Promise<WrittenNames> {
    const { on } = this
    const columns = nameColumnsOf(on)
    const arrays = ['$1::pg_catalog.tid[]', ...columns.map((_, index) => `$${index + 2}::pg_catalog.text[]`)]
    const texts = columns.map((_, index) => changed.map((one) => one.texts[index] ?? null))
    await session.query(savepoint.set)
    try {
      // The triggers claim the new texts.
      const rows = await session.query<{ spot: string }>(
        `WITH written AS (UPDATE ${own(on)} SET ${columns.map((name, index) => `${quote(name)} = c.n${index}`).join(', ')}
  FROM ${unnest(arrays)} AS c (spot, ${columns.map((_, index) => `n${index}`).join(', ')})
 WHERE t.ctid OPERATOR(pg_catalog.=) c.spot AND t.ctid OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.tid[])
RETURNING t.ctid::pg_catalog.text AS spot)
SELECT w.spot FROM written AS w`,
        [changed.map(({ spot }) => spot), ...texts],
      )
      await session.query(savepoint.release)
      return { spots: rows.map(({ spot }) => spot), notes: [] }
    } catch (error) {
      const told = serverError(error)
      const clashes = told && refusedNames(told, on.holder.of)
      const constraint = ownConstraint(error, [on.holder.of.index])
      const spot = changed[0]?.spot ?? ''
      if (!clashes && constraint === undefined) throw error
      await session.all([savepoint.rollBack, savepoint.release])
      if (!clashes) {
        const reason = `${constraint} refuses it normalized (SQLSTATE ${told?.code})`
        return { spots: [], notes: [{ spot, kind: 'refused', reason }] }
      }
      const notes = clashes.map(({ column, holder, holderColumn, key }) => ({
        spot,
        kind: 'clash' as const,
        property: column ?? null,
        holder: holder ?? null,
        holder_property: holderColumn ?? null,
        holder_key: key ? JSON.stringify(key) : null,
      }))
      return { spots: [], notes }
    }
  }

  /** Tries each remaining row once more. @returns how many of them other sessions have locked */
  private async claimLeft(run: WorkRun): Promise<number> {
    const { session } = run
    const { on } = this
    const [{ seq } = { seq: '0' }] = await session.query<{ seq: string }>(
      `SELECT coalesce(pg_catalog.max(l.seq), 0)::pg_catalog.text AS seq FROM ${leftRowsOf(on)} AS l`,
    )
    for (let [limit, attempts] = [NAME_BATCH.first, 0]; ;) {
      const size = limit
      const found = await tried(async () => await this.claimNotes(run, seq, size))
      if (found === 0) break
      if (found === undefined) {
        attempts += 1
        // One row at a time, so that only rows that another session has locked wait.
        limit = 1
        if (attempts > MOST_TRIES) {
          // The first note becomes the last, for another round.
          await session.patiently('fill', async () => {
            await session.query(noteKeys(on), [await this.popNotes(session, seq, 1)])
          })
        }
        await session.rest(attempts)
      } else attempts = 0
      await session.breathe()
    }
    return (await this.countLeft(session)).get('busy') ?? 0
  }

  private async popNotes({ query }: AdoptSession, upTo: string, limit: number): Promise<string[]> {
    return (await query<{ key: string }>(popNotes(this.on), [upTo, limit])).map(({ key }) => key)
  }

  private async claimNotes(run: WorkRun, upTo: string, limit: number): Promise<number> {
    const { session } = run
    const { on } = this
    return await session.together(async () => {
      const notes = await this.popNotes(session, upTo, limit)
      const keys = [...new Set(notes)]
      if (keys.length === 0) return 0
      const rows = await session.query<RowToClaim>(
        `SELECT t.ctid::pg_catalog.text AS spot, l.key::pg_catalog.text AS key, ${nameTexts(on).join(', ')}
  FROM pg_catalog.unnest($1::pg_catalog.jsonb[]) AS l (key) JOIN ${own(on)} ON ${joinedByKey(on)} FOR NO KEY UPDATE OF t SKIP LOCKED`,
        [keys],
      )
      const locked = new Set(rows.map(({ key }) => key))
      await session.query(noteKeys(on), [keys.filter((key) => !locked.has(key))])
      await this.claimRowsOf(run, rows)
      return notes.length
    })
  }

  /** Counts the notes on remaining rows, by kind. */
  private async countLeft({ query }: AdoptSession): Promise<ReadonlyMap<string, number>> {
    const rows = await query<Record<'kind' | 'notes', string>>(
      `SELECT l.kind, pg_catalog.count(*)::pg_catalog.text AS notes FROM ${leftRowsOf(this.on)} AS l GROUP BY l.kind`,
    )
    return new Map(rows.map(({ kind, notes }) => [kind, Number(notes)]))
  }

  /** @returns an error with the decisions for a person: another row holds a name, or the normalizer refuses one */
  private async errorForLeft(session: AdoptSession): Promise<AdoptionError | undefined> {
    const { on } = this
    const left = await this.countLeft(session)
    if (left.size === 0) return undefined
    // Each row once by kind and property, with its last note.
    const first = await session.query<LeftName>(`SELECT l.* FROM (
  SELECT DISTINCT ON (l.kind, l.key, l.property) l.kind, l.key::pg_catalog.text AS key, l.property, l.reason, l.holder,
    l.holder_property, l.holder_key::pg_catalog.text AS holder_key
    FROM ${leftRowsOf(on)} AS l ORDER BY l.kind, l.key, l.property, l.seq DESC) AS l
 LIMIT ${KEYS_NAMED}`)
    const told: string[] = []
    const clashes = first.filter(({ kind }) => kind === 'clash')
    if (clashes.length > 0) {
      const named = clashes.map(
        ({ key, property, holder, holder_property: column, holder_key: other }) =>
          `${property ?? ''} ${key} and ${holder ?? ''}.${column ?? ''} ${other ?? ''}`,
      )
      told.push(
        `${left.get('clash') ?? 0} rows of ${tableName(on.table)} have a name that another row has: ` +
          `${named.join('; ')}. Rename one of each.`,
      )
    }
    const refused = first.filter(({ kind }) => kind === 'refused')
    if (refused.length > 0) {
      told.push(
        `Normalized names are refused for ${left.get('refused') ?? 0} rows: ` +
          `${refused.map(({ key, reason }) => `${key}: ${reason ?? ''}`).join('; ')}. Correct or delete them. With ` +
          `--refused keep, names that the normalizer refuses stay as they are.`,
      )
    }
    return new AdoptionError('refused', `${told.join(' ')} Then run this again.`)
  }

  /**
   * Recreates the look-ups. CREATE INDEX CONCURRENTLY waits until no transaction has a snapshot that is older than the
   * claims. Without that wait, a transaction at REPEATABLE READ could leave a name behind.
   */
  async index({ session }: WorkRun): Promise<AdoptStep> {
    for (const lookup of this.lookups) await makeLookup(session, this.on, lookup)
    return await goOn(session, this.on, 'guard')
  }

  /**
   * After the commit, the triggers no longer allow for rows without claimed names. If names were lost, rows with a clash
   * may be left; `clean` reports them.
   */
  async guard({ session }: WorkRun): Promise<AdoptStep> {
    return await session.patiently('guard', async () => {
      await session.all(changeTriggers(this.on, false))
      return await goOn(session, this.on, 'check')
    })
  }

  async check(run: WorkRun): Promise<AdoptStep> {
    return await requireNotNull(run, this.on, this.required, 'clean', async () => {
      await this.refuseNulls(run.session)
      return 'check'
    })
  }

  /** Throws the error for a person only at the end, so that an application whose rows have lost names need not wait. */
  async clean({ session }: WorkRun): Promise<AdoptStep> {
    const { on } = this
    const left = await this.errorForLeft(session)
    await session.patiently('clean', async () => {
      await session.all(dropTemporary(on))
      await session.query(forgetState(on), [on.table.guard])
    })
    await session.query(analyzeNames(on))
    if (left) throw left
    return 'done'
  }

  plan(): PlannedStep[] {
    const { on } = this
    return [
      { step: 'begin', lock: undefined, statements: [...createAdoptions(on), ...createClaims(on)] },
      { step: 'begin', lock: 'SHARE ROW EXCLUSIVE', statements: beginNames(on) },
      { step: 'fill', lock: undefined, statements: [lockRows(on, NAME_BATCH.first, true), claimRows(on)] },
      { step: 'index', lock: undefined, statements: this.lookups.flatMap(createLookup) },
      { step: 'guard', lock: undefined, statements: changeTriggers(on, false) },
      ...planRequired(on, this.required),
      { step: 'clean', lock: undefined, statements: dropTemporary(on) },
    ]
  }

  dropAll(): string[] {
    return [
      ...nameTriggersOf(this.on.holder).drop,
      ...alterTable(this.on, dropFilled(this.on, nameColumnsOf(this.on).length)),
      ...this.lookups.flatMap((one) =>
        addLookup(one).down.map((sql) => sql.replace('DROP INDEX', 'DROP INDEX IF EXISTS')),
      ),
    ]
  }

  async afterDropping(session: AdoptSession): Promise<void> {
    await session.all(createClaims(this.on))
    await this.deleteNames(session, 'abandon', null)
    await session.all(dropTemporary(this.on))
  }
}

/** The parts of TypeORM's schema builder that are needed to make one table. */
interface TableBuilder {
  log(): Promise<{ readonly upQueries: readonly { readonly query: string; readonly parameters?: unknown[] }[] }>
}

/**
 * Makes the table of names if it does not exist. Nobody waits for a new table. It belongs to the
 * owner of the adopted table, because the triggers write to it as that owner.
 */
async function makeNamesTable(session: AdoptSession, metadata: EntityMetadata, owner: string): Promise<void> {
  const dataSource = dataSourceOf(metadata)
  const { metadata: names, table } = namesText(dataSource)
  const works = triggerWorks(names)
  const { table: state } = await tableState(session.query, tableName(table), wantedSets(names, works))
  if (state) {
    if ([...findDrift(table, state), ...workDrift(works, state)].length === 0) return
    throw new AdoptionError(
      'unsupported',
      `The table of names, ${tableName(table)}, is not as ${names.name} declares it. Run its migrations first.`,
    )
  }
  const { master } = dataSource.driver as unknown as {
    readonly master?: { readonly options?: { readonly max?: number } }
  }
  if (master?.options?.max === 1) {
    // TypeORM's builder would wait for a second connection forever.
    throw new AdoptionError('unsupported', 'The table of names needs a second connection: give the pool two.')
  }
  const builder = dataSource.driver.createSchemaBuilder() as unknown as TableBuilder
  // The builder then sees no other entity.
  Object.defineProperty(builder, 'entityToSyncMetadatas', { value: [names] })
  const { upQueries } = await builder.log()
  await session.query(`BEGIN; SET LOCAL ROLE ${quote(owner)}`)
  try {
    for (const { query, parameters } of upQueries) await session.query(query, parameters)
    await session.query('COMMIT')
  } catch (error) {
    await session.query('ROLLBACK').catch(() => {})
    throw error
  }
}

/** @returns undefined if another session has locked rows that the work needs */
async function tried<T>(work: () => Promise<T>): Promise<T | undefined> {
  try {
    return await work()
  } catch (error) {
    if (!isBusyError(error)) throw error
    return undefined
  }
}
