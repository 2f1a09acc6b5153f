import { DataSource, type EntityMetadata, type EntityTarget, type ObjectLiteral } from 'typeorm'
import { findNames } from '../adopt/name-steps'
import { findNumber } from '../adopt/number-steps'
import type { FindWork } from '../adopt/work'
import { DeclarationError } from '../errors'
import { checkOptions, RULE, type Rules } from '../options'
import { tableState, type TableState } from '../sql/catalog'
import { readSurroundings, relationNamed, type Surroundings } from '../sql/doctor-catalog'
import { TEXT_TRIGGERS } from '../sql/trigger-set'
import { findDrift, workDrift } from '../schema/drift'
import { registry, rootOf, tableDeclarations, tableNames, tableNumbers } from '../registry/registry'
import { triggerWorks, wantedSets } from '../schema/trigger-sets'
import { adoptionOf, adoptionOfWork, type DoctorAdoption, findingsOfAdoption, findingsOfIndexes } from './adoption'
import { awaitingAdoption, type DoctorFinding, findingOf, type Place, schemaFinding } from './findings'
import { lookAtHolders, lookAtNames, namesColumns } from './names'
import { lookAtNumbers } from './numbers'
import { columnsOf } from './stored-text'
import { columnNames, missingColumns, Reader, relationOf, rowsOf, type Subject, typed } from './subject'
import { TextLook } from './texts'

/** Options of `doctor`. */
export interface DoctorOptions {
  /** Whose tables to examine. @default all that declare a text, a name or a number, and the table of names */
  readonly entities?: readonly EntityTarget<ObjectLiteral>[]
  /**
   * A table as SQL names it: a partition, attached or not, or a shard. Its rows are looked at in place of those of the
   * one entity, and what stands around them is not: ATTACH PARTITION makes index and triggers. @default the entity's own
   */
  readonly table?: string
  /** The most rows that one statement reads. @default 5000 */
  readonly batchRows?: number
  /** Ends the call between two statements, which then throws the reason of the signal. */
  readonly signal?: AbortSignal
  /** Called after each batch. */
  readonly onProgress?: (progress: DoctorProgress) => void
}

const RULES: Rules<DoctorOptions> = {
  entities: { takes: Array.isArray, expected: 'a list of entities' },
  table: RULE.name,
  batchRows: RULE.positive,
  signal: RULE.signal,
  onProgress: RULE.function,
}

/** How far the doctor has come. */
export interface DoctorProgress {
  readonly entity: string
  readonly property: string
  /** Rows that were read so far for this property. */
  readonly rows: number
}

/** One table that was examined. */
export interface DoctorTable {
  readonly entity: string
  readonly table: string
  readonly heapBytes: number
  /** Size of all its indexes, in bytes. */
  readonly indexBytes: number
  readonly declarations: readonly DoctorDeclaration[]
}

/** What was counted for one declaration. */
export interface DoctorDeclaration {
  readonly property: string
  readonly kind: 'text' | 'name' | 'number'
  readonly rows: number
  /** Rows without a text or a name. */
  readonly nulls: number
  /** Chains of more than one text. */
  readonly collisions: number
  /** Rows of the longest chain; 0 where there is none. */
  readonly longestChain: number
  /** What `adopt` would do; absent where the guard stands. */
  readonly adoption?: DoctorAdoption
}

/** The report of `doctor`. */
export interface DoctorReport {
  /** No finding is an error. */
  readonly healthy: boolean
  readonly findings: readonly DoctorFinding[]
  readonly tables: readonly DoctorTable[]
}

const BATCH_ROWS = 5_000

/**
 * Examines the stored rows of every declaration, and what guards them: texts that are stored twice, hashes that do not
 * match their text, wrong chains, names and counts, texts that are not normalized, triggers, index and checks.
 *
 * It changes nothing, takes no lock but ACCESS SHARE, and reads in batches, each in a snapshot of its own. What
 * concerns several rows is examined once more in one snapshot, so that no concurrent write makes a false finding. It
 * needs one connection, and 16 bytes for each row of a table.
 *
 * @throws DeclarationError for a wrong option, and for an entity that declares nothing
 * @throws the reason of the signal
 * @example
 * const { healthy, findings } = await doctor(dataSource, { entities: [Page] })
 */
export async function doctor(dataSource: DataSource, options: DoctorOptions = {}): Promise<DoctorReport> {
  const { batchRows = BATCH_ROWS, signal, onProgress } = checked(dataSource, options)
  const chosen = chosenTables(dataSource, options.entities)
  const queryRunner = dataSource.createQueryRunner('master')
  const reader = new Reader(queryRunner, batchRows, signal)
  const visit: Visit = { dataSource, reader, onProgress, part: options.table }
  const [found, tables]: [DoctorFinding[], DoctorTable[]] = [[], []]
  try {
    for (const metadata of chosen) {
      const { findings, table } = await examineTable(visit, metadata)
      found.push(...findings)
      if (table) tables.push(table)
    }
    if (visit.part === undefined) found.push(...(await findingsOfNames(visit, chosen)))
  } finally {
    await queryRunner.release()
  }
  const findings = awaitingAdoption(found, registry.namesEntity.get(dataSource)?.name)
  return { healthy: findings.every(({ severity }) => severity !== 'error'), findings, tables }
}

function checked(dataSource: DataSource, options: DoctorOptions): DoctorOptions {
  const given: unknown = dataSource
  if (!(given instanceof DataSource) && !hasMetadata(given)) {
    throw new DeclarationError('doctor(): expected a DataSource that is initialized.')
  }
  checkOptions('doctor()', options, RULES)
  if (options.table !== undefined && options.entities?.length !== 1)
    throw new DeclarationError('doctor(): name the one entity of the table in entities.')
  return options
}

const hasMetadata = (given: unknown): boolean =>
  typeof given === 'object' && given !== null && 'entityMetadatas' in given

/** Whether there is anything to look at. */
export const declaresAnything = (metadata: EntityMetadata): boolean =>
  [tableDeclarations(metadata), tableNames(metadata), tableNumbers(metadata)].some(({ length }) => length > 0)

/** Each table once, in the order of the entities. */
function chosenTables(dataSource: DataSource, entities: DoctorOptions['entities']): readonly EntityMetadata[] {
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
  /** As SQL; undefined: the tables of the entities. */
  readonly part: string | undefined
}

interface Examined {
  readonly findings: readonly DoctorFinding[]
  readonly table?: DoctorTable
}

async function examineTable(visit: Visit, metadata: EntityMetadata): Promise<Examined> {
  const { reader, part } = visit
  const relation = part === undefined ? relationOf(metadata) : await relationNamed(reader.query, part)
  const subject = relation === undefined ? undefined : await openSubject(visit, metadata, relation)
  if (!subject || relation === undefined) return { findings: [tableMissing(metadata, part)] }
  const { state, surroundings } = subject
  const looks = await lookAtRows(visit, subject)
  const around = [...schemaFindings(subject), ...findingsAround(metadata, state, surroundings)]
  return {
    findings: [...(part === undefined ? around : []), ...looks.findings],
    table: {
      entity: metadata.name,
      table: relation,
      heapBytes: surroundings.heapBytes,
      indexBytes: surroundings.indexBytes,
      declarations: looks.declarations,
    },
  }
}

const tableMissing = ({ name, tableName }: EntityMetadata, part = tableName): DoctorFinding =>
  schemaFinding({ object: 'table', kind: 'missing', name: part }, { entity: name, property: null })

/** @returns undefined where there is no such table */
async function openSubject(
  { reader, onProgress }: Visit,
  metadata: EntityMetadata,
  relation = relationOf(metadata),
): Promise<Subject | undefined> {
  const { table: state } = await tableState(reader.query, relation, wantedSets(metadata))
  const surroundings = await readSurroundings(reader.query, relation, referenceNames(metadata))
  if (!state || !surroundings) return undefined
  const key = typed(state, columnNames(metadata.primaryColumns))
  const onRows = (property: string, rows: number): void => onProgress?.({ entity: metadata.name, property, rows })
  return { metadata, table: { rows: rowsOf(relation, surroundings), key }, state, surroundings, reader, onRows }
}

/** What is missing from index, check, columns and triggers. */
function schemaFindings({ metadata, state }: Subject): DoctorFinding[] {
  const entity = metadata.name
  const texts = tableDeclarations(metadata).flatMap(({ table, name }) =>
    findDrift(table, state).map((one) => schemaFinding(one, { entity, property: name })),
  )
  const works = workDrift(triggerWorks(metadata), state)
  return [...texts, ...works.map((one) => schemaFinding(one, { entity, property: null }))]
}

interface Looks {
  readonly findings: DoctorFinding[]
  readonly declarations: DoctorDeclaration[]
}

/** Looks at the rows of one declaration, where its columns are there. */
type LookAt = (property: string, columns: readonly string[], run: (place: Place) => Promise<Look>) => Promise<void>

async function lookAtRows(visit: Visit, subject: Subject): Promise<Looks> {
  const { metadata } = subject
  const looks: Looks = { findings: [], declarations: [] }
  const keyColumns = columnNames(metadata.primaryColumns)
  const look: LookAt = async (property, columns, run) => {
    const place = { entity: metadata.name, property }
    const missing = missingColumns(subject.state, [...keyColumns, ...columns])
    looks.findings.push(...missing.map((name) => schemaFinding({ object: 'column', kind: 'missing', name }, place)))
    if (missing.length > 0) return
    const { findings, ...figures } = await run(place)
    looks.findings.push(...findings)
    looks.declarations.push({ property, nulls: 0, collisions: 0, longestChain: 0, ...figures })
  }
  for (const declaration of tableDeclarations(metadata)) {
    await look(declaration.name, columnsOf(declaration), async (place) => {
      const text = new TextLook(subject, declaration, place)
      const [findings, adoption] = [await text.findings(), await adoptionOf(subject, declaration)]
      if (!adoption) return { kind: 'text', findings, ...text.figures }
      const size = { rows: text.figures.rows, heapBytes: subject.surroundings.heapBytes }
      const told = findingsOfAdoption(adoption, place, size)
      const indexes = findingsOfIndexes(subject.state, declaration, place, findings)
      return { kind: 'text', findings: [...told, ...indexes, ...findings], ...text.figures, adoption }
    })
  }
  await lookAtWorks(subject, looks, look)
  return looks
}

/** Names and numbers. */
async function lookAtWorks(subject: Subject, looks: Looks, look: LookAt): Promise<void> {
  const { metadata } = subject
  for (const declaration of tableNames(metadata)) {
    const { name, text } = declaration
    await look(name, [text.column.databaseName], async (place) => {
      const looked = await lookAtNames(subject, declaration, place)
      const adoption = await adoptionOfWork(subject, async (query) => await findNames(metadata, query))
      return { kind: 'name', ...withAdoption(subject, looked, { adoption, place, code: 'names.unadopted' }) }
    })
  }
  for (const declaration of tableNumbers(metadata)) {
    const { name, table } = declaration
    const columns = [...table.scope.map((one) => one.name), table.number]
    const find: FindWork = async (query) => await findNumber(declaration, query)
    if (missingColumns(subject.state, [table.number]).length > 0) {
      const [place, adoption] = [{ entity: metadata.name, property: name }, await adoptionOfWork(subject, find)]
      const told = withAdoption(subject, { rows: 1, findings: [] }, { adoption, place, code: 'number.unadopted' })
      looks.findings.push(...told.findings)
    }
    await look(name, columns, async (place) => {
      const looked = await lookAtNumbers(subject, declaration, place)
      const adoption = await adoptionOfWork(subject, find)
      return { kind: 'number', ...withAdoption(subject, looked, { adoption, place, code: 'number.unadopted' }) }
    })
  }
}

/** What was looked at, with what `adopt` would do. */
function withAdoption<T extends Pick<Look, 'rows' | 'findings'>>(
  { surroundings }: Subject,
  looked: T,
  { adoption, place, code }: Unadopted,
): T & Pick<Look, 'findings' | 'adoption'> {
  if (!adoption) return looked
  const size = { rows: looked.rows, heapBytes: surroundings.heapBytes }
  const findings = [...findingsOfAdoption(adoption, place, size, code), ...looked.findings]
  return { ...looked, findings, adoption }
}

interface Unadopted {
  readonly adoption: DoctorAdoption | undefined
  readonly place: Place
  readonly code: 'names.unadopted' | 'number.unadopted'
}

/** Whether the table of names is right; only about the chosen entities, unless the table itself is chosen. */
async function findingsOfNames(visit: Visit, chosen: readonly EntityMetadata[]): Promise<readonly DoctorFinding[]> {
  const metadata = registry.namesEntity.get(visit.dataSource)
  const holders = chosen.filter((one) => tableNames(one).length > 0)
  if (!metadata || (holders.length === 0 && !chosen.includes(metadata))) return []
  const subject = await openSubject(visit, metadata)
  if (!subject) return chosen.includes(metadata) ? [] : [tableMissing(metadata)]
  if (missingColumns(subject.state, namesColumns(visit.dataSource)).length > 0) return []
  return await lookAtHolders(subject, visit.dataSource, chosen.includes(metadata) ? undefined : holders)
}

type Look = Pick<DoctorDeclaration, 'kind' | 'rows'> &
  Partial<DoctorDeclaration> & { readonly findings: readonly DoctorFinding[] }

/** A transaction that is open for longer than this is reported. */
const OLD_SECONDS = 60

/** What a migration or the doctor meets around a table. */
export function findingsAround(
  metadata: EntityMetadata,
  { triggers }: TableState,
  around: Surroundings,
): DoctorFinding[] {
  const { oldestSeconds, partitions } = around
  // Triggers of an adoption that is not done are not those of a declaration.
  const isOurs = (name: string): boolean => name.startsWith(TEXT_TRIGGERS) || triggers.some((one) => one.name === name)
  const users = around.updateTriggers.filter((name) => !isOurs(name))
  const named = {
    'trigger.user': users,
    'replication.publication': around.publications,
    'replication.subscription': around.subscriptions,
    'table.inherits': around.relatives,
    'reference.undeclared': around.lookalikes,
  } as const
  const counted = {
    'rows.hidden': [around.hidesRows ? 1 : 0, undefined],
    'table.partitioned': [partitions, undefined],
    'transaction.old': [(oldestSeconds ?? 0) >= OLD_SECONDS ? 1 : 0, `open for ${oldestSeconds} s`],
  } as const
  const place = { entity: metadata.name, property: null }
  const all = [
    ...Object.entries(named).map(([code, objects]) => [code, objects.length, objects.join(', ')] as const),
    ...Object.entries(counted).map(([code, [count, detail]]) => [code, count, detail] as const),
  ]
  return all
    .filter(([, count]) => count > 0)
    .map(([code, count, detail]) =>
      findingOf(code as keyof typeof named | keyof typeof counted, place, {
        count,
        ...(detail === undefined ? {} : { detail }),
      }),
    )
}

/** What columns of other tables that refer to a table would be called (`page_id`, `pagesId`), in one spelling. */
export function referenceNames({ tableName, name, primaryColumns }: EntityMetadata): string[] {
  const [key, ...more] = primaryColumns
  if (!key || more.length > 0) return []
  const bases = [tableName, name].map(spelling)
  const all = bases.flatMap((base) => [base, base.replace(/s$/u, ''), base.replace(/ies$/u, 'y')])
  return [...new Set(all.map((base) => base + spelling(key.databaseName)))]
}

const spelling = (name: string): string => name.replaceAll(/[_\s]/gu, '').toLowerCase()
