import type { DataSource, EntityMetadata, EntityTarget, ObjectLiteral } from 'typeorm'
import { planOf } from '../adopt/adopt'
import { AdoptionError } from '../adopt/session'
import type { AdoptionLock } from '../adopt/options'
import { FIND_COMMAND } from '../adopt/table'
import { findTarget, type Target } from '../adopt/target'
import { storedState } from '../adopt/state'
import { DeclarationError, UnsupportedDatabaseError } from '../errors'
import { checkOptions, RULE, type Rules } from '../options'
import { namesTable } from '../registry/name-declarations'
import { type Declaration, namesOfTable, numbersOfTable, registry, rootOf, textsOfTable } from '../registry/registry'
import { exactState, findDrift, tablesBeside, spreadDrift, workDrift } from '../schema/readiness'
import { triggerWorks, wantedLookups } from '../schema/table'
import type { TableState } from '../sql/catalog'
import { scopesTable } from '../sql/numbers'
import { isElsewhere } from '../sql/spread'
import { tableName } from '../sql/text-table'
import {
  awaitingAdoption,
  databaseNames,
  type DoctorFinding,
  findingOf,
  type ListedCode,
  missingColumns,
  type Place,
  Reader,
  unlessUnreadable,
  qualifiedTable,
  countedRows,
  schemaFinding,
  type Subject,
  typed,
} from './findings'
import { readSurroundings, relationNamed, type Surroundings } from './sql'
import { examinedColumns, TextLook } from './texts'
import {
  isForeign,
  isOurs,
  lookAtHolders,
  lookAtNames,
  lookAtNumbers,
  namesColumns,
  ownDrift,
} from './names-and-numbers'

/** Options of `doctor`. */
export interface DoctorOptions {
  /** The entities to examine. @default all that declare a text, a name or a number, and the table of names */
  readonly entities?: readonly EntityTarget<ObjectLiteral>[]
  /**
   * A table by its name in SQL: a partition, attached or not, or a shard. Its rows are examined instead of those of the
   * one entity. Its index and triggers are not, because ATTACH PARTITION makes them. @default the entity's own
   */
  readonly table?: string
  /** The most rows that one statement reads. @default 5000 */
  readonly batchRows?: number
  /** Ends the call between two statements. The call then throws the reason of the signal. */
  readonly signal?: AbortSignal
  /** Called after each batch. */
  readonly onProgress?: (progress: DoctorProgress) => void
}

const DOCTOR_RULES: Rules<DoctorOptions> = {
  entities: { takes: Array.isArray, expected: 'a list of entities' },
  table: RULE.name,
  batchRows: RULE.positive,
  signal: RULE.signal,
  onProgress: RULE.function,
}

/** The progress of the doctor. */
export interface DoctorProgress {
  /** The entity that is read. */
  readonly entity: string
  /** The property that is read. */
  readonly property: string
  /** The number of rows read so far for this property. */
  readonly rows: number
}

/** One table that was examined. */
export interface DoctorTable {
  /** The name of the entity. */
  readonly entity: string
  /** The table, quoted as in SQL. */
  readonly table: string
  /** The size of the heap, in bytes. */
  readonly heapBytes: number
  /** The size of all indexes, in bytes. */
  readonly indexBytes: number
  /** The texts, names and numbers of the table. */
  readonly declarations: readonly DoctorDeclaration[]
}

/** The counts of one declaration. */
export interface DoctorDeclaration {
  /** The property of the text, name or number. */
  readonly property: string
  /** The kind of the declaration. */
  readonly kind: 'text' | 'name' | 'number'
  /** How many rows were read. */
  readonly rows: number
  /** The number of rows without a text or a name. */
  readonly nulls: number
  /** The number of chains with more than one text. */
  readonly collisions: number
  /** The number of rows of the longest chain; 0 if there is none. */
  readonly longestChain: number
  /** The steps that `adopt` would run; absent if the guard exists. */
  readonly adoption?: DoctorAdoption
}

/** The report of `doctor`. */
export interface DoctorReport {
  /** Whether no finding is an error. */
  readonly healthy: boolean
  /** All findings, in the order of the tables. */
  readonly findings: readonly DoctorFinding[]
  /** The tables that were read. */
  readonly tables: readonly DoctorTable[]
}

const WORK_LOOK_ROWS = 5_000

/**
 * Examines the stored rows of every declaration, and their guards. It finds texts that are stored twice, hashes that do
 * not match their text, texts that are not normalized, and wrong chains, names, counts, triggers, indexes and checks.
 *
 * It changes nothing, takes no lock but ACCESS SHARE, and reads in batches, each in a snapshot of its own. Groups of
 * rows are examined again in one snapshot, so that no concurrent write makes a false finding. It needs one connection,
 * and 16 bytes for each row of a table.
 *
 * @throws DeclarationError for a wrong option, and for an entity that declares nothing
 * @throws the reason of the signal
 * @example
 * const { healthy, findings } = await doctor(dataSource, { entities: [Page] })
 */
export async function doctor(dataSource: DataSource, options: DoctorOptions = {}): Promise<DoctorReport> {
  return await examine(dataSource, options)
}

/**
 * Does the work of `doctor`.
 *
 * @param onEqual receives the stored texts of each group that normalizing makes equal. The report holds no texts.
 */
export async function examine(
  dataSource: DataSource,
  options: DoctorOptions,
  onEqual?: Subject['onEqual'],
): Promise<DoctorReport> {
  const chosen = chosenTables(dataSource, options)
  const { table: part, batchRows = WORK_LOOK_ROWS, signal, onProgress } = options
  const queryRunner = dataSource.createQueryRunner('master')
  const reader = new Reader(queryRunner, batchRows, signal)
  const visit: Visit = { dataSource, reader, onProgress, onEqual }
  const [found, tables]: [DoctorFinding[], DoctorTable[]] = [[], []]
  try {
    for (const metadata of chosen) {
      const { findings, table } = await examineTable(visit, metadata, part)
      found.push(...findings)
      if (table) tables.push(table)
    }
    if (part === undefined) found.push(...(await findingsOfNames(visit, chosen)))
  } finally {
    await queryRunner.release()
  }
  const findings = awaitingAdoption(found)
  return { healthy: findings.every(({ severity }) => severity !== 'error'), findings, tables }
}

/** Whether the entity has a declaration to examine. */
export const declaresAnything = (metadata: EntityMetadata): boolean =>
  [textsOfTable(metadata), namesOfTable(metadata), numbersOfTable(metadata)].some(({ length }) => length > 0)

/** Checks the options. @returns each table once, in the order of the entities */
function chosenTables(dataSource: DataSource, options: DoctorOptions): readonly EntityMetadata[] {
  if (!RULE.dataSource.takes(dataSource)) {
    throw new DeclarationError('doctor(): expected a DataSource that is initialized.')
  }
  checkOptions('doctor()', options, DOCTOR_RULES)
  const { entities, table } = options
  if (table !== undefined && entities?.length !== 1)
    throw new DeclarationError('doctor(): name the one entity of the table in entities.')
  const chosen = entities?.map((entity) => dataSource.getMetadata(entity)) ?? dataSource.entityMetadatas
  const roots = [...new Set(chosen.map(rootOf))]
  const idle = entities && roots.find((metadata) => !declaresAnything(metadata))
  if (!idle) return roots.filter(declaresAnything)
  throw new DeclarationError(
    `doctor(): ${idle.name} declares no unique text, name or number. Leave it out, or declare one.`,
  )
}

interface Visit {
  readonly dataSource: DataSource
  readonly reader: Reader
  readonly onProgress: DoctorOptions['onProgress']
  readonly onEqual: Subject['onEqual']
}

/** @param part a table's name as SQL; if undefined, the table of the entity */
async function examineTable(
  visit: Visit,
  metadata: EntityMetadata,
  part: string | undefined,
): Promise<{ readonly findings: readonly DoctorFinding[]; readonly table?: DoctorTable }> {
  const { dataSource, reader } = visit
  const relation = part === undefined ? qualifiedTable(metadata) : await relationNamed(reader.query, part)
  const subject = relation === undefined ? undefined : await openTextSubject(visit, metadata, relation)
  if (!subject || relation === undefined) return { findings: [tableMissing(metadata, part)] }
  const { state, surroundings } = subject
  const { heapBytes, indexBytes } = surroundings
  const isForeignNames = metadata === registry.namesEntity.get(dataSource) && (await isForeign(dataSource, reader))
  const { findings, declarations } = isForeignNames ? { findings: [], declarations: [] } : await lookAtRows(subject)
  const around = [...schemaFindings(subject), ...findingsAround(metadata, state, surroundings)]
  return {
    findings: [...(part === undefined ? around : []), ...findings],
    table: { entity: metadata.name, table: relation, heapBytes, indexBytes, declarations },
  }
}

const tableMissing = ({ name, tableName }: EntityMetadata, part = tableName): DoctorFinding =>
  schemaFinding({ object: 'table', kind: 'missing', name: part }, { entity: name, property: null })

/** @returns undefined if there is no such table */
async function openTextSubject(
  { dataSource, reader, onProgress, onEqual }: Visit,
  metadata: EntityMetadata,
  relation = qualifiedTable(metadata),
): Promise<Subject | undefined> {
  const state = await exactState(metadata, triggerWorks(metadata), { query: reader.whole, within: false, relation })
  if (!state) return undefined
  const scopes = numbersOfTable(metadata).flatMap(({ table }) =>
    table.count || table.reuse === false ? [scopesTable(table)] : [],
  )
  const names = namesOfTable(metadata).length === 0 ? [] : [tableName(namesTable(dataSource))]
  const surroundings = await readSurroundings(reader.query, relation, {
    references: referenceNames(metadata),
    companions: [...scopes, ...names, ...(isOurs(metadata) ? [relation] : [])],
    triggers: state.triggers.map(({ name }) => name),
    texts: textsOfTable(metadata).flatMap(({ table: { text } }) => text.map(({ name }) => name)),
    others: tablesBeside(metadata),
    place: state.spread,
  })
  if (!surroundings) return undefined
  const key = typed(state, databaseNames(metadata.primaryColumns))
  const onRows = (property: string, rows: number): void => onProgress?.({ entity: metadata.name, property, rows })
  const table = { rows: countedRows(relation, surroundings), key }
  return { metadata, table, state, surroundings, reader, onRows, onEqual }
}

/** Finds missing indexes, checks, columns and triggers, and declarations that the place of the rows does not allow. */
function schemaFindings({ metadata, state, surroundings }: Subject): DoctorFinding[] {
  const entity = metadata.name
  const texts = textsOfTable(metadata).flatMap(({ table, name }) =>
    findDrift(table, state).map((one) => schemaFinding(one, { entity, property: name })),
  )
  const elsewhere = spreadDrift(metadata, surroundings.spread).map(({ detail }) =>
    findingOf('table.spread', { entity, property: null }, { count: 1, detail }),
  )
  const sets = triggerWorks(metadata)
  const lookups = wantedLookups({ metadata, works: sets }).filter(({ name }) =>
    state.indexes.every((one) => one.name !== name),
  )
  const works = [
    ...(elsewhere.length > 0 ? [] : [...workDrift(sets, state), ...ownDrift(metadata, state)]),
    ...lookups.map(({ name }) => ({ object: 'index', kind: 'missing', name }) as const),
  ]
  return [...elsewhere, ...texts, ...works.map((one) => schemaFinding(one, { entity, property: null }))]
}

/** A declaration whose rows are examined, and the work of `adopt` for it. */
interface Look {
  readonly property: string
  readonly kind: DoctorDeclaration['kind']
  /** The columns to read. The last is that of a number. */
  readonly columns: readonly string[]
  readonly examine: (place: Place) => Promise<Looked>
  /** The declaration, if it is of a text. */
  readonly text?: Declaration
}

type Looked = Pick<DoctorDeclaration, 'rows'> &
  Partial<DoctorDeclaration> & { readonly findings: readonly DoctorFinding[] }

function looksAt(subject: Subject): Look[] {
  const { metadata } = subject
  const texts = textsOfTable(metadata).map((declaration): Look => {
    return {
      property: declaration.name,
      kind: 'text',
      columns: examinedColumns(declaration),
      examine: async (place) => {
        const text = new TextLook(subject, declaration, place)
        return { findings: await text.findings(), ...text.figures }
      },
      text: declaration,
    }
  })
  if (isElsewhere(subject.surroundings.spread.distribution)) return texts
  const names = namesOfTable(metadata).map((declaration): Look => {
    return {
      property: declaration.name,
      kind: 'name',
      columns: [declaration.text.column.databaseName],
      examine: async (place) => await lookAtNames(subject, declaration, place),
    }
  })
  const numbers = numbersOfTable(metadata).map((declaration): Look => {
    const { name, table } = declaration
    return {
      property: name,
      kind: 'number',
      columns: [...table.scope.map((one) => one.name), table.number],
      examine: async (place) => await lookAtNumbers(subject, declaration, place),
    }
  })
  return [...texts, ...names, ...numbers]
}

/** Examines the rows of every declaration whose columns exist. */
async function lookAtRows(
  subject: Subject,
): Promise<{ readonly findings: DoctorFinding[]; readonly declarations: DoctorDeclaration[] }> {
  const { metadata, state } = subject
  const [findings, declarations]: [DoctorFinding[], DoctorDeclaration[]] = [[], []]
  for (const look of looksAt(subject)) {
    const { property, kind, columns } = look
    const place = { entity: metadata.name, property }
    const missing = missingColumns(state, [...databaseNames(metadata.primaryColumns), ...columns])
    findings.push(...missing.map((name) => schemaFinding({ object: 'column', kind: 'missing', name }, place)))
    if (missing.length > 0) continue
    const found = await unlessUnreadable(place, async () => {
      const looked = await look.examine(place)
      const { findings: ofLook, ...figures } = look.text
        ? await withAdoption(subject, place, looked, look.text)
        : looked
      declarations.push({ property, kind, nulls: 0, collisions: 0, longestChain: 0, ...figures })
      return ofLook
    })
    findings.push(...found)
  }
  return { findings, declarations }
}

/** Adds the steps of `adopt`, and the remains of a command that ended early, to the result of a look. */
async function withAdoption(subject: Subject, place: Place, looked: Looked, text: Declaration): Promise<Looked> {
  const target = await unlessRefused(async () => await findTarget(text, subject.reader.query))
  if (!target) return looked
  const { step, findings: left } = await leftBehind(subject, target, place)
  const findings = [...left, ...looked.findings]
  const steps = isDue(text, subject) ? await unlessRefused(() => planOf(target)) : undefined
  if (!steps) return { ...looked, findings }
  const next = step ?? 'begin'
  const locks = steps
    .slice(steps.findIndex((one) => one.step === next))
    .flatMap((one) => (one.lock === undefined ? [] : [{ step: one.step, mode: one.lock }]))
  const adoption = { step: next, locks }
  const size = { rows: looked.rows, heapBytes: subject.surroundings.heapBytes }
  const beside = findingsOfIndexes(subject.state, text, place, looked.findings)
  return { ...looked, findings: [...findingsOfAdoption(adoption, place, size), ...beside, ...findings], adoption }
}

/** Whether the text has no guard, so that `adopt` makes it. If a guard has lost a column, a migration mends it. */
const isDue = ({ table }: Declaration, { state }: Subject): boolean =>
  findDrift(table, state).some(({ object, kind }) => kind === 'missing' && object === 'guard')

/** Examines the table of names, only for the chosen entities, unless the table itself is chosen. */
async function findingsOfNames(visit: Visit, chosen: readonly EntityMetadata[]): Promise<readonly DoctorFinding[]> {
  const metadata = registry.namesEntity.get(visit.dataSource)
  const holders = chosen.filter((one) => namesOfTable(one).length > 0)
  if (!metadata || (holders.length === 0 && !chosen.includes(metadata))) return []
  const subject = await openTextSubject(visit, metadata)
  if (!subject) return chosen.includes(metadata) ? [] : [tableMissing(metadata)]
  const columns = [...databaseNames(metadata.primaryColumns), ...namesColumns(visit.dataSource)]
  if (missingColumns(subject.state, columns).length > 0 || (await isForeign(visit.dataSource, visit.reader))) return []
  const place = { entity: metadata.name, property: 'text' }
  if (isElsewhere(subject.surroundings.spread.distribution)) return [findingOf('table.spread', place, { count: 1 })]
  const among = chosen.includes(metadata) ? undefined : holders
  return await unlessUnreadable(place, async () => await lookAtHolders(subject, visit.dataSource, among))
}

/** A transaction that is open for this long or longer is reported. */
const OLD_SECONDS = 60

/** Finds the surroundings of a table that concern a migration or the doctor. */
export function findingsAround(
  { name: entity }: EntityMetadata,
  { written }: TableState,
  { found, oldestSeconds }: Surroundings,
): DoctorFinding[] {
  const { 'table.partitioned': partitions = 0, ...before } = found
  const all = {
    ...before,
    'definitions.uncompared': written ? 0 : 1,
    'table.partitioned': partitions,
    'transaction.old': (oldestSeconds ?? 0) >= OLD_SECONDS ? [`open for ${oldestSeconds} s`] : 0,
  }
  return Object.entries(all).flatMap(([code, objects]) => {
    const [count, detail] = typeof objects === 'number' ? [objects, undefined] : [objects.length, objects.join(', ')]
    return count === 0 ? [] : [findingOf(code as ListedCode, { entity, property: null }, { count, detail })]
  })
}

/** The likely names, in one spelling, of columns that refer to a table (`page_id`, `pagesId`). */
export function referenceNames({ tableName, name, primaryColumns }: EntityMetadata): string[] {
  const [key, ...more] = primaryColumns
  if (!key || more.length > 0) return []
  const bases = [tableName, name].map(spelling)
  const all = bases.flatMap((base) => [base, base.replace(/s$/u, ''), base.replace(/ies$/u, 'y')])
  return [...new Set(all.map((base) => base + spelling(key.databaseName)))]
}

const spelling = (name: string): string => name.replaceAll(/[_\s]/gu, '').toLowerCase()

/** A lock of `adopt` that blocks readers or writers. */
export type DoctorLock = Pick<AdoptionLock, 'step' | 'mode'>

/** The steps and locks that an adoption needs. */
export interface DoctorAdoption {
  /** The next step. */
  readonly step: string
  /** The locks that the next steps take. */
  readonly locks: readonly DoctorLock[]
}

/** @returns undefined if `adopt` refuses the table */
async function unlessRefused<T>(look: () => T | Promise<T>): Promise<T | undefined> {
  try {
    return await look()
  } catch (error) {
    if (error instanceof AdoptionError || error instanceof UnsupportedDatabaseError) return undefined
    throw error
  }
}

/**
 * Finds an adoption that ended early. While a command works on the table, there is none. The step is the one where
 * `adopt` continues, or undefined if none has begun or the role may not read the state.
 */
async function leftBehind({ reader }: Subject, target: Target, place: Place) {
  const look = async () => {
    const step = (await storedState(reader.query, target))?.step
    const [row] = (await reader.query(FIND_COMMAND, [target.facts.oid])) as readonly { running: boolean }[]
    const isLeft = step !== undefined && row?.running === false
    return {
      step,
      findings: isLeft ? [findingOf('adoption.unfinished', place, { count: 1, detail: `next step ${step}` })] : [],
    }
  }
  const left = await look()
  // A command that ended between the two statements had its state before and no lock after, but has left nothing.
  return left.findings.length === 0 ? left : await look()
}

/** Returns an unfinished adoption as findings. */
export function findingsOfAdoption(
  { step, locks }: DoctorAdoption,
  place: Place,
  { rows, heapBytes }: { readonly rows: number; readonly heapBytes: number },
): DoctorFinding[] {
  const named = locks.map(({ step, mode }) => `${step} ${mode}`).join(', ') || 'none'
  const size = `${Math.ceil(heapBytes / 1e6)} MB`
  return [
    findingOf('text.unadopted', place, { count: rows, detail: `next step ${step}; short locks: ${named}` }),
    findingOf('disk.needed', place, { count: 1, detail: `up to ${size} for new versions of rows, and the index` }),
  ]
}

/** Finds the user's unique indexes that stop `adopt` because it would normalize a text into that of another row. */
function findingsOfIndexes(
  { indexes }: Subject['state'],
  { table }: Declaration,
  place: Place,
  found: readonly DoctorFinding[],
): DoctorFinding[] {
  if (found.every(({ code }) => code !== 'text.twiceNormalized')) return []
  const texts: readonly unknown[] = table.text.map(({ name }) => name)
  const names = indexes.flatMap(({ unique, name, columns }) => {
    // An index that has only expressions has no columns.
    const over: readonly unknown[] | null = columns
    return unique && name !== table.index && texts.some((one) => over?.includes(one)) ? [name] : []
  })
  return names.length === 0 ? [] : [findingOf('index.user', place, { count: names.length, detail: names.join(', ') })]
}
