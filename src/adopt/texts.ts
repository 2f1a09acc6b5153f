import type { ObjectLiteral } from 'typeorm'
import { findDrift } from '../schema/readiness'
import { addCheck, createIndex, indexCondition, sameCondition, uniqueIndexOf } from '../sql/alter'
import type { LookupIndex } from '../sql/catalog'
import { literal, qualified, quote } from '../sql/identifier'
import { serverError, SQLSTATE } from '../sql/sqlstate'
import {
  bytewise,
  field,
  hashExpression,
  isFreed,
  isLive,
  rowHash,
  tableName,
  textIsNull,
  textRules,
} from '../sql/text-table'
import { detach, ensureLibrary } from '../sql/library'
import { makeFunctions } from '../sql/trigger-set'
import { guardOf } from '../triggers/guard'
import {
  chainColumns,
  chainFields,
  dropNumbered,
  type Filled,
  findChains,
  isOfChain,
  lockChains,
  newHash,
  numberChains,
  settleMost,
  settleRest,
  TEXT_BATCH,
  writeNumbers,
} from './chains'
import { parseRows } from './exact-json'
import type { AdoptStep, PlannedStep } from './options'
import {
  alteredTexts,
  columnsOfChanges,
  createRefused,
  inPages,
  isUnfilled,
  isWanted,
  type Pages,
  pagesOf,
  readChanges,
  readTexts,
  readTextsOf,
  refusedKey,
  refusedRows,
  refusedTexts,
  refuseListed,
  renormalize,
  sweepPages,
  type Wanted,
  writeChanges,
} from './pages'
import { AdoptionError, type AdoptSession } from './session'
import { guardedAs, noteOf, refuseLost, refuseTaken, refuseTarget } from './guarded'
import {
  type AdoptedTable,
  alterTable,
  analyzeTable,
  dropObjects,
  dropTriggers,
  FIRST_TEMPORARY_NUMBER,
  functionOf,
  keyAsJson,
  nameOf,
  nextNumber,
  numbersOf,
  objectOf,
  own,
  ownAlone,
  queueOf,
  refusedOf,
  same,
  samePrimary,
  sameTexts,
  type TextSite,
  triggerNames,
  TRIGGERS,
  vacuumTable,
} from './table'
import { againstOwn, KEYS_NAMED, normalizeStored, type RefusedRows, refuseNullRows } from './refusals'
import type { Target } from './target'
import {
  adoptions,
  beginState,
  type Check,
  createAdoptions,
  createLookup,
  dropFilled,
  dropIndex,
  type Duplicates,
  finishWork,
  type FoundRows,
  forgetState,
  goOn,
  makeIndex,
  makeLookup,
  planRequired,
  requireNotNull,
  throughPlaces,
  type WorkRun,
  type WorkState,
  wouldFire,
} from './work'

/** Creates the unique index as TypeORM does, while others write. */
const createTextIndex = ({ table }: TextSite): string =>
  createIndex(tableName(table), quote(table.index), uniqueIndexOf(table), 'CONCURRENTLY ')

/** Disables the transitional triggers at the commit of the guard. To drop one takes a lock that blocks readers. */
const disableTriggers = (on: TextSite): string =>
  `ALTER TABLE ${tableName(on.table)} ${triggerNames(on)
    .map((name) => `DISABLE TRIGGER ${quote(name)}`)
    .join(', ')}`

/** Drops everything that only the adoption needed. */
const dropTemporary = (on: TextSite): string[] => [...dropTriggers(on), ...dropObjects(on)]

/**
 * Drops columns, index and check, and the remains of an adoption. The guard's own statements run first.
 *
 * @param lookup an index that is dropped too
 */
function dropColumns(on: TextSite, lookup?: string): string[] {
  const { table } = on
  const columns = [table.hash, table.number, table.chained].map((name) => `DROP COLUMN IF EXISTS ${quote(name)}`)
  return [
    ...dropTemporary(on),
    `DROP TABLE IF EXISTS ${refusedOf(on)}`,
    ...(lookup === undefined ? [] : [`DROP INDEX IF EXISTS ${qualified(table.schema, lookup)}`]),
    ...alterTable(on, [...dropFilled(on, table.text.length + table.scope.length + columns.length), ...columns]),
  ]
}

/**
 * Writes the hashes of the rows of these pages. If the normalizer changed a text, and the row still has the old text,
 * the new text is written too. Rows that others have locked are left for another sweep. Returns how many rows needed a
 * write and how many of them were written, and stores the progress of the sweep.
 *
 * @param changes whether texts changed; $3 are their spots, and the old and new texts of each column follow
 */
function fillPages(on: AdoptedTable, pages: Pages, wanted: Wanted, changes: boolean): string {
  const { table } = on
  const hash = quote(table.hash)
  const lock = 'FOR NO KEY UPDATE SKIP LOCKED'
  const other = changes ? ' AND NOT (t.ctid OPERATOR(pg_catalog.=) ANY ($3::pg_catalog.tid[]))' : ''
  const where = `${inPages(pages)} AND ${isWanted(on, wanted)}${other}`
  return `WITH seen AS (SELECT pg_catalog.count(*) AS n FROM ${own(on)} WHERE ${where}),
held AS MATERIALIZED (SELECT t.ctid AS spot FROM ${own(on)} WHERE ${where} ${lock}),
written AS (
  UPDATE ${own(on)} SET ${hash} = ${rowHash(table, 't')}
    FROM held WHERE t.ctid OPERATOR(pg_catalog.=) held.spot AND ${inPages(pages)} RETURNING 1),
${changes ? `${fillChanged(on, pages, wanted, lock)},\n` : ''}stored AS (
  UPDATE ${adoptions(on)} AS a SET state = a.state OPERATOR(pg_catalog.||) $2::pg_catalog.jsonb
   WHERE a.guard OPERATOR(pg_catalog.=) $1::pg_catalog.text)
SELECT ((SELECT n FROM seen)${changes ? ' OPERATOR(pg_catalog.+) pg_catalog.cardinality($3::pg_catalog.tid[])' : ''})::pg_catalog.text AS seen,
       ((SELECT pg_catalog.count(*) FROM written)${changes ? ' OPERATOR(pg_catalog.+) (SELECT pg_catalog.count(*) FROM altered)' : ''})::pg_catalog.text AS written`
}

/** Writes changed texts. A row that had a hash leaves its chain and gets its own number. Its new chain is noted. */
function fillChanged(on: AdoptedTable, pages: Pages, wanted: Wanted, lock: string): string {
  const { table } = on
  const { rows, set, unchanged } = alteredTexts(on, 3)
  const [hash, number, chained] = [table.hash, table.number, table.chained].map(quote)
  const moved = wanted === 'missing' ? '' : `, ${number} = ${nextNumber(on)}, ${chained} = false`
  return `changed AS (
  SELECT c.* FROM ${rows}),
open AS MATERIALIZED (
  SELECT t.ctid AS spot FROM ${own(on)} WHERE ${inPages(pages)} AND t.ctid OPERATOR(pg_catalog.=) ANY ($3::pg_catalog.tid[])
     AND ${wanted === 'missing' ? isUnfilled(on) : 'true'} ${lock}),
altered AS (
  UPDATE ${own(on)} SET ${set}, ${hash} = ${newHash(on)}${moved}
    FROM open JOIN changed AS c ON c.spot OPERATOR(pg_catalog.=) open.spot
   WHERE t.ctid OPERATOR(pg_catalog.=) open.spot AND ${inPages(pages)} AND ${unchanged}
  RETURNING ${[...table.scope.map((name) => field('t', name)), `t.${hash}`].join(', ')})${
    wanted === 'missing' ? '' : `,\nnoted AS (INSERT INTO ${queueOf(on)} (${chainColumns(on)}) SELECT * FROM altered)`
  }`
}

/** Creates the objects that the transitional triggers need. Does not lock the table itself. */
function createObjects(on: AdoptedTable): string[] {
  const { table } = on
  const scope = table.scope.map((name, index) => `t.${quote(name)} AS s${index}, `).join('')
  return [
    ...dropObjects(on),
    `CREATE SEQUENCE ${numbersOf(on)} AS pg_catalog.int4 MINVALUE ${FIRST_TEMPORARY_NUMBER}`,
    `CREATE TABLE ${queueOf(on)} AS SELECT ${scope}NULL::pg_catalog.${table.digest.type} AS hash ` +
      `FROM ${tableName(table)} AS t WITH NO DATA`,
    `ALTER TABLE ${queueOf(on)} ADD seq pg_catalog.int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY, ` +
      `ADD numbered pg_catalog.bool NOT NULL DEFAULT false`,
    ...createRefused(on),
    ...ownAlone(on, [numbersOf(on), queueOf(on)]),
    ...makeFunctions({ fresh: [functionOf(on, 'place', placingBody(on)), functionOf(on, 'note', noteBody(on))] }),
  ]
}

const sameScopeColumns = ({ table }: TextSite): string[] =>
  table.scope.map((name) => same(field('OLD', name), field('NEW', name)))

const keepsHash = ({ table }: TextSite): string => same(field('OLD', table.hash), field('NEW', table.hash))

/** Gives every row that a client writes its hash at once, and a number of its own until its chain is settled. */
function placingBody(on: AdoptedTable): string {
  const { table } = on
  const [hash, number, chained] = [table.hash, table.number, table.chained].map(quote)
  const set = (value: string, place: string): string =>
    `NEW.${hash} := ${value};\n  NEW.${number} := ${place};\n  NEW.${chained} := false;\n  RETURN NEW;`
  const textless = table.nullable
    ? `  IF ${textIsNull(table, 'NEW').join(' AND ')} THEN\n  ${set('NULL', '0')}\n  END IF;\n`
    : ''
  const freed = isFreed(table, 'NEW').map(
    (gone) => `  IF ${gone} THEN\n  ${set(hashExpression(table, 'NEW'), '0')}\n  END IF;\n`,
  )
  return `\nBEGIN\n${textless}${freed.join('')}  ${set(hashExpression(table, 'NEW'), nextNumber(on))}\nEND\n`
}

/** Notes the chain that a row joined, and the one that an anchor left. */
function noteBody(on: AdoptedTable): string {
  const { table } = on
  const columns = [...table.scope.map((_, index) => `s${index}`), 'hash'].join(', ')
  const note = (row: string): string => {
    const values = [...table.scope, table.hash].map((name) => field(row, name)).join(', ')
    return `INSERT INTO ${queueOf(on)} (${columns}) VALUES (${values});`
  }
  const number = (row: string): string => field(row, table.number)
  const came = [
    `TG_OP OPERATOR(pg_catalog.<>) 'DELETE'`,
    `${field('NEW', table.hash)} IS NOT NULL`,
    `${number('NEW')} OPERATOR(pg_catalog.>=) ${FIRST_TEMPORARY_NUMBER}`,
    `(TG_OP OPERATOR(pg_catalog.=) 'INSERT' OR ${number('OLD')} OPERATOR(pg_catalog.<>) ${number('NEW')})`,
  ]
  const stayed = [...sameScopeColumns(on), keepsHash(on), ...isLive(table, 'NEW')]
  const left = [
    `TG_OP OPERATOR(pg_catalog.<>) 'INSERT'`,
    field('OLD', table.chained),
    `(TG_OP OPERATOR(pg_catalog.=) 'DELETE' OR NOT (${stayed.join(' AND ')}))`,
  ]
  return `
BEGIN
  IF ${came.join(' AND ')} THEN
    ${note('NEW')}
  END IF;
  IF ${left.join(' AND ')} THEN
    ${note('OLD')}
  END IF;
  RETURN NULL;
END
`
}

function createTriggers(on: AdoptedTable): string[] {
  const { table } = on
  const trigger = (suffix: (typeof TRIGGERS)[number], event: string, run: string, when?: string): string =>
    `CREATE TRIGGER ${quote(nameOf(on, suffix))} ${event} ON ${tableName(table)} FOR EACH ROW ` +
    `${when === undefined ? '' : `WHEN (${when}) `}EXECUTE FUNCTION ${objectOf(on, run)}()`
  const [oldHash, newHash] = [field('OLD', table.hash), field('NEW', table.hash)]
  const stayed = [...sameTexts(on, 'OLD', 'NEW'), ...sameScopeColumns(on), keepsHash(on)].join(' AND ')
  const restored =
    table.deleted === undefined ? [] : [[...isFreed(table, 'OLD'), ...isLive(table, 'NEW')].join(' AND ')]
  // The backfill sets the hash of a row that has none, and a number that it knows to be right.
  const written = `${newHash} IS NULL OR ${oldHash} IS NOT NULL AND (${[`NOT (${stayed})`, ...restored].join(' OR ')})`
  const [was, is] = [field('OLD', table.number), field('NEW', table.number)]
  const temporary = `${is} OPERATOR(pg_catalog.>=) ${FIRST_TEMPORARY_NUMBER}`
  return [
    trigger('place_insert', 'BEFORE INSERT', 'place'),
    trigger('place_update', 'BEFORE UPDATE', 'place', written),
    trigger('note_insert', 'AFTER INSERT', 'note', temporary),
    trigger(
      'note_update',
      'AFTER UPDATE',
      'note',
      `${temporary} AND ${was} OPERATOR(pg_catalog.<>) ${is} OR ${field('OLD', table.chained)}`,
    ),
    trigger('note_delete', 'AFTER DELETE', 'note', field('OLD', table.chained)),
  ]
}

/** Adds the hidden columns, as constants that rewrite no row, and the transitional triggers. */
function beginAdoption({ on, declaration, state }: Target): string[] {
  const { table } = on
  const existing = new Set(state.columns.map(({ name }) => name))
  const hidden = [
    { name: table.hash, type: table.digest.type },
    { name: table.number, type: 'integer NOT NULL DEFAULT 0' },
    { name: table.chained, type: 'boolean NOT NULL DEFAULT false' },
  ]
  const added = hidden.filter(({ name }) => !existing.has(name)).map(({ name, type }) => `ADD ${quote(name)} ${type}`)
  return [
    ...alterTable(on, added),
    ...hidden.map(
      ({ name }, index) =>
        `COMMENT ON COLUMN ${tableName(table)}.${quote(name)} IS ${literal(declaration.hidden[index]?.comment ?? '')}`,
    ),
    ...dropTriggers(on),
    ...createTriggers(on),
  ]
}

/** The state of the adoption of a text. */
export interface TextState extends WorkState {
  readonly wanted: Wanted
  readonly page: number
  readonly pages: number | null
  /** Whether a guard exists and rows are normalized under it. @default false */
  readonly renormalizes?: boolean
}

/** How often a sweep frees the space of old row versions for new ones. Otherwise the heap would double. */
const VACUUMS = 4

const VACUUM_LEAST_PAGES = 1_000

type Steps = Readonly<Partial<Record<AdoptStep, (run: WorkRun) => Promise<AdoptStep>>>>

/** A text, and its table on this connection. */
export abstract class TextWork {
  /** The steps. Each can be repeated from its start, and returns the next one. */
  abstract readonly steps: Steps
  /** Its name in messages. */
  readonly said: string
  readonly rules: string
  /** Whether the objects are as declared. */
  readonly isReady: boolean
  /** The written columns that an index or a constraint of the user may cover. */
  readonly writtenColumns: readonly string[]
  /** The rows that an index or a constraint of the user may refuse. */
  readonly written: Pick<RefusedRows, 'what' | 'ours' | 'ofUnique'>
  readonly on: Target['on']
  readonly facts: Target['facts']
  /** Whether the normalizer may change a text. */
  readonly normalizes: boolean

  constructor(
    protected readonly target: Target,
    readonly stored: TextState | undefined,
  ) {
    const { declaration, on, normalizes, state } = target
    const { table } = on
    this.on = on
    this.facts = target.facts
    this.normalizes = normalizes
    this.said = `"${declaration.name}"`
    this.rules = JSON.stringify([textRules(table, table.digest.name), table.deleted, table.normalizers])
    this.isReady = findDrift(declaration.table, state).length === 0
    this.writtenColumns = normalizes ? table.text.map(({ name }) => name) : []
    this.written = {
      what: normalizes ? 'a row with its normalized text' : 'a row that gets its hash',
      ours: [table.index, table.check],
      ofUnique:
        'adopt --dry-run lists the texts that become equal. Without the unique index, clients can store equal texts ' +
        'until the step guard: they are reported, and --merge merges them.',
    }
  }

  /** @throws AdoptionError if the steps cannot adopt the table */
  abstract refuse(): void

  /** Keeps the table's own triggers from firing in this session. @throws AdoptionError if that is not possible */
  abstract keepTriggersOut(session: AdoptSession): Promise<void>

  abstract plan(): PlannedStep[]

  /** Returns the statements that remove everything. @throws AdoptionError */
  dropAll(): string[] {
    const { declaration, on } = this.target
    if (this.stored === undefined && guardedAs(this.target) === 'none') refuseTaken(this.target)
    const drop = noteOf(this.target) ? guardOf(on.table).drop : []
    return [...drop, ...dropColumns(on, declaration.lookup)]
  }

  /** Reads what the steps have found so far. @param isDone whether there was no step to do */
  async report(session: AdoptSession, step: AdoptStep, isDone: boolean): Promise<FoundRows> {
    const found = isDone ? { rejected: [], rejectedTotal: 0 } : await refusedRows(session, this.target)
    if (step !== 'done' && step !== 'clean') return { ...found, duplicates: undefined }
    const { on } = this
    const { table } = on
    const by = [...table.scope.map((name) => field('t', name)), ...table.text.map(({ name }) => bytewise('t', name))]
    const live = [...isLive(table, 't'), 'true'].join(' AND ')
    const [row] = await session.query<Record<'groups' | 'surplus' | 'largest' | 'first', string>>(
      `WITH c AS MATERIALIZED (SELECT ${chainFields(on)} FROM ${own(on)} WHERE t.${quote(table.chained)} AND ${live}),
g AS MATERIALIZED (
  SELECT pg_catalog.count(*) AS n, pg_catalog.jsonb_agg(${keyAsJson(on)} ORDER BY ${on.primary.map((name) => field('t', name)).join(', ')}) AS keys
    FROM c JOIN ${own(on)} ON ${isOfChain(on, 'c')} GROUP BY ${by.join(', ')}
  HAVING pg_catalog.count(*) OPERATOR(pg_catalog.>) 1)
SELECT pg_catalog.count(*)::pg_catalog.text AS groups, coalesce(pg_catalog.sum(g.n) OPERATOR(pg_catalog.-) pg_catalog.count(*), 0)::pg_catalog.text AS surplus,
       coalesce(pg_catalog.max(g.n), 0)::pg_catalog.text AS largest,
       (SELECT coalesce(pg_catalog.jsonb_agg(f.keys), '[]') FROM (SELECT g.keys FROM g ORDER BY g.keys LIMIT ${KEYS_NAMED}) AS f)::pg_catalog.text AS first
  FROM g`,
    )
    const duplicates: Duplicates = {
      groups: Number(row?.groups ?? 0),
      surplus: Number(row?.surplus ?? 0),
      largest: Number(row?.largest ?? 0),
      first: parseRows(row?.first ?? '[]', 3) as ObjectLiteral[][],
    }
    return { ...found, duplicates }
  }
}

/** A text without a guard. */
export class UnguardedText extends TextWork {
  readonly steps: Steps = {
    begin: async (run) => await this.begin(run),
    fill: async (run) => await this.fill(run),
    number: async (run) => await this.number(run),
    index: async (run) => await this.index(run),
    check: async (run) => await this.check(run),
    guard: async (run) => await this.guard(run),
    clean: async (run) => await this.clean(run),
  }

  refuse(): void {
    refuseTarget(this.target, this.stored !== undefined)
  }

  async keepTriggersOut(session: AdoptSession): Promise<void> {
    const { updateTriggers, replicaTriggers, keyColumns } = this.facts
    if (updateTriggers.length === 0) return
    const key = this.writtenColumns.find((name) => keyColumns.includes(name))
    if (replicaTriggers.length > 0) {
      throw wouldFire(
        this.on,
        this.facts,
        `${replicaTriggers.join(', ')} would fire with session_replication_role = replica too`,
      )
    }
    if (key !== undefined) {
      const why = `${quote(key)} is in a foreign key, which is not looked at with session_replication_role = replica`
      throw wouldFire(this.on, this.facts, why)
    }
    if (await session.becomeReplica()) return
    throw wouldFire(this.on, this.facts, 'the role may not set session_replication_role')
  }

  /** Adds columns and transitional triggers. After its commit, every written row has its hash. */
  private async begin(run: WorkRun): Promise<AdoptStep> {
    const { session } = run
    const { on, state, required } = this.target
    await this.refuseNulls(session, required)
    await beginState(run, this, {})
    // A restored backup may lack the state of an adoption.
    const transitional = await session.query(
      `SELECT g.oid FROM pg_catalog.pg_trigger AS g WHERE g.tgrelid OPERATOR(pg_catalog.=) ${literal(tableName(on.table))}::pg_catalog.regclass ` +
        `AND g.tgname OPERATOR(pg_catalog.=) ANY (ARRAY[${triggerNames(on).map(literal).join(', ')}])`,
    )
    if (transitional.length > 0) {
      await session.locked(
        { on, step: 'begin', mode: 'ACCESS EXCLUSIVE' },
        async () => await session.all(dropTemporary(on)),
      )
    }
    await session.all(createObjects(on))
    // If these columns were made by hand, their values are checked.
    const wanted: Wanted = state.columns.some(({ name }) => name === on.table.hash) ? 'wrong' : 'missing'
    // If a guard has lost a trigger, its other triggers are dropped.
    const note = noteOf(this.target)
    const left = note ? [detach(on.table, note)] : []
    return await session.locked({ on, step: 'begin', mode: 'ACCESS EXCLUSIVE' }, async () => {
      await session.all(left)
      await session.all(beginAdoption(this.target))
      return await goOn(session, on, 'fill', { wanted, page: 0, pages: null })
    })
  }

  private async refuseNulls({ query }: AdoptSession, columns: readonly string[]): Promise<void> {
    const { on, state } = this.target
    const there = columns.filter((name) => name !== on.table.hash && state.columns.some((one) => one.name === name))
    const todo = 'Give them a value or delete them, or declare the property nullable.'
    await refuseNullRows(query, on, there, todo)
  }

  /** Sweeps until no row is left. Rows that another session had locked are swept again. */
  private async fill({ session, options, counts }: WorkRun): Promise<AdoptStep> {
    const { target, on } = this
    let { wanted, page, pages } = { wanted: 'missing' as Wanted, page: 0, pages: null as number | null, ...this.stored }
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
          options.onProgress?.({ step: 'fill', fraction: next / Math.max(sweep.pages, 1), rows: counts.filled })
          if (Math.floor(next / vacuumed) > Math.floor(last / vacuumed)) await session.query(vacuumTable(on))
          last = next
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
  private async number({ session, counts }: WorkRun): Promise<AdoptStep> {
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

  private async index({ session }: WorkRun): Promise<AdoptStep> {
    const { on } = this
    const { state, declaration } = this.target
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
      if (!isThere) await makeIndex(session, on, table.index, createTextIndex(on))
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
    const { table } = this.on
    const isThere = this.target.state.checks.some(({ name }) => name === table.check)
    const [sql = ''] = addCheck(table).up
    return { name: table.check, clause: isThere ? undefined : `${sql.slice(sql.indexOf('ADD CONSTRAINT'))} NOT VALID` }
  }

  /** Adds checks as NOT VALID, validates them in one scan that blocks nobody, and then requires the columns. */
  private async check(run: WorkRun): Promise<AdoptStep> {
    const { session } = run
    const { on, required } = this.target
    const mend = async (): Promise<AdoptStep> => {
      await this.refuseNulls(session, required)
      // A row without its hash, or with another hash, was written past the triggers.
      return await goOn(session, on, 'fill', { wanted: 'wrong', page: 0, pages: null })
    }
    return await requireNotNull(run, on, required, mend, this.ownCheck())
  }

  /** After the commit of its last transaction, no text is stored twice. */
  private async guard(run: WorkRun): Promise<AdoptStep> {
    const { session } = run
    const { target } = this
    const { on } = this
    await this.reviewRefused(run)
    await refuseListed(run, target)
    // This uses the unique index, which does not exist while the notes are made.
    await session.patiently('index', async () => await session.query(dropNumbered(on)))
    const prepare = async (): Promise<void> => await settleMost(run, target)
    return await session.locked({ on, step: 'guard', mode: 'SHARE ROW EXCLUSIVE', prepare }, async (inTime) => {
      await settleRest(session, target)
      inTime()
      await session.all([...guardOf(on.table).create, disableTriggers(on)])
      return await goOn(session, on, 'clean')
    })
  }

  /** Removes corrected and deleted rows from the list of refused rows. Deletes the others if the caller wants that. */
  private async reviewRefused({ session, options }: WorkRun): Promise<void> {
    const { on, target } = this
    const rows = await session.query<Readonly<Record<string, string | null>>>(refusedTexts(on))
    const refused = rows.filter(
      (row) => 'refused' in normalizeStored(target.declaration.text, readTextsOf(target, row)),
    )
    if (options.rejected === 'delete' && refused.length > 0) {
      const spots = refused.map(({ spot }) => spot)
      const remove = async () =>
        await session.query(
          `DELETE FROM ${own(on)} USING ${refusedOf(on)} AS r WHERE ${samePrimary(on, 'r.k')} ` +
            `AND t.ctid OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.tid[])`,
          [spots],
        )
      await session.asOrigin(remove).catch((error: unknown) =>
        againstOwn(error, {
          on: on.table,
          what: 'to delete a row whose text the normalizer refuses',
          next: 'Delete or change what refers to it, or keep it with --rejected keep',
          ours: [],
        }),
      )
    }
    // By key, because a row that a client has written to meanwhile is at another place.
    await session.query(
      `DELETE FROM ${refusedOf(on)} AS r WHERE NOT (${refusedKey(on)} OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.jsonb[]) ` +
        `AND EXISTS (SELECT FROM ${own(on)} WHERE ${samePrimary(on, 'r.k')}))`,
      [refused.map(({ key }) => key)],
    )
  }

  private async clean({ session }: WorkRun): Promise<AdoptStep> {
    const { on } = this
    await finishWork(session, on, 'clean', dropTemporary(on))
    await session.query(analyzeTable(on))
    return 'done'
  }

  plan(): PlannedStep[] {
    const { on, required } = this.target
    return [
      { step: 'begin', lock: undefined, statements: [...createAdoptions(on), ...createObjects(on)] },
      { step: 'begin', lock: 'ACCESS EXCLUSIVE', statements: beginAdoption(this.target) },
      {
        step: 'fill',
        lock: undefined,
        statements: [fillPages(on, { from: 0, to: 16 }, 'missing', false), vacuumTable(on)],
      },
      { step: 'number', lock: undefined, statements: [...findChains(on), numberChains(on)] },
      {
        step: 'index',
        lock: undefined,
        statements: [createTextIndex(on), ...lookupsOf(this.target).flatMap(createLookup)],
      },
      ...planRequired(on, required, this.ownCheck()),
      { step: 'guard', lock: undefined, statements: [lockChains(on), writeNumbers(on)] },
      {
        step: 'guard',
        lock: 'SHARE ROW EXCLUSIVE',
        statements: [...guardOf(on.table).create, disableTriggers(on)],
      },
      { step: 'clean', lock: 'ACCESS EXCLUSIVE', statements: dropTemporary(on) },
      { step: 'clean', lock: undefined, statements: [analyzeTable(on)] },
    ]
  }
}

const lookupsOf = ({ on: { table }, declaration: { lookup: name } }: Target): LookupIndex[] =>
  name === undefined ? [] : [{ rows: table, name, column: table.text[0]?.name ?? '' }]

/**
 * A text whose rows are normalized again under its guard. The guard is kept, so that no text is stored twice meanwhile.
 * If another row holds the normalized text of a row, that row is noted with the refused rows.
 */
export class GuardedText extends TextWork {
  readonly steps: Steps = {
    begin: async (run) => await this.begin(run),
    fill: async (run) => await this.fill(run),
    guard: async (run) => await this.guard(run),
  }

  refuse(): void {
    refuseLost(this.target)
  }

  async keepTriggersOut(): Promise<void> {
    // Only a text that the normalizer changes is written.
  }

  private async begin(run: WorkRun): Promise<AdoptStep> {
    await beginState(run, this, { renormalizes: true })
    await run.session.all(createRefused(this.on))
    return await goOn(run.session, this.on, 'fill', { page: 0, pages: 0 })
  }

  /**
   * Sweeps until no row is left. The next step is not stored. A run that stops there begins a new sweep, because
   * refused texts may have been corrected.
   */
  private async fill(run: WorkRun): Promise<AdoptStep> {
    const { session } = run
    const { on, stored } = this
    let page = stored && stored.page < (stored.pages ?? 0) ? stored.page : 0
    if (page === 0) await session.all(createRefused(on))
    for (let sweeps = 1; ; sweeps += 1) {
      const left = await this.sweep(run, page).catch(async (error: unknown) => {
        // Nothing was written, so the table stays adopted.
        const isRefused = error instanceof AdoptionError && error.reason === 'user-triggers'
        if (isRefused) await session.query(forgetState(on), [on.table.guard])
        throw error
      })
      if (left === 0 && page === 0) return 'guard'
      if (left > 0) await session.rest(sweeps)
      page = 0
    }
  }

  /** Normalizes the rows of all pages from a given page on. @returns how many rows were locked, or changed meanwhile */
  private async sweep({ session, options, counts }: WorkRun, page: number): Promise<number> {
    const { target, on } = this
    const pages = await pagesOf(session, target)
    return await sweepPages(
      session,
      target,
      { wanted: 'wrong', page, pages },
      async (part) => {
        const changes = await readChanges(session, target, part, 'wrong')
        if (changes.length > 0 && this.facts.updateTriggers.length > 0 && options.userTriggers !== 'fire')
          throw wouldFire(this.on, this.facts, 'the guard has to run')
        const written = await writeChanges(session, target, changes)
        counts.normalized += written.rows
        return changes.length - written.rows - written.refused.size
      },
      async (next) => {
        await goOn(session, on, 'fill', { page: next, pages })
        options.onProgress?.({ step: 'fill', fraction: next / pages, rows: counts.normalized })
      },
    )
  }

  /** Replaces the guard with that of the declaration, if they differ. */
  private async guard(run: WorkRun): Promise<AdoptStep> {
    const { session } = run
    const { on } = this
    await refuseListed(run, this.target)
    if (this.isReady) await session.query(forgetState(on), [on.table.guard])
    else await finishWork(session, on, 'guard', this.changeGuard())
    return 'done'
  }

  private changeGuard(): string[] {
    const { table } = this.target.on
    return [ensureLibrary(table.schema, 'texts'), guardOf(table).attach]
  }

  plan(): PlannedStep[] {
    const { on } = this
    const first = { from: 0, to: 16 }
    return [
      { step: 'begin', lock: undefined, statements: createAdoptions(on) },
      {
        step: 'fill',
        lock: undefined,
        statements: [...createRefused(on), readTexts(on, first, 'wrong'), renormalize(on)],
      },
      { step: 'guard', lock: 'ACCESS EXCLUSIVE', statements: this.changeGuard() },
    ]
  }
}
