import type { DataSource, EntityManager, EntityMetadata, EntityTarget, ObjectLiteral } from 'typeorm'
import type { Session } from '../connection/session'
import { DeclarationError, TransactionAbortedError } from '../errors'
import {
  type ColumnMetadata,
  dataSourceOf,
  type Declaration,
  namesOfEntity,
  namesOfTable,
  type ReadyTable,
  textsOfEntity,
  textsOfTable,
} from '../registry/registry'
import { ensureReady, forgetIfChanged } from '../schema/readiness'
import type { BatchRow, Statement, StoredRow } from '../sql/find'
import type { SpatialColumn } from '../sql/types'
import type { SqlOfRows } from '../sql/upsert'
import { requireManager } from './call-options'

/** The statements for rows that set the same columns. */
export interface RowStatements {
  readonly find: Statement<StoredRow>
  readonly findStanding: Statement<StoredRow>
  readonly findOrCreate: Statement<StoredRow>
  /** Inserts without a look-up, as a distributed table requires. */
  readonly create: Statement<StoredRow>
  readonly createInChain: Statement<StoredRow>
  readonly createInChainOrRaise: Statement<StoredRow>
  /** Clears the delete date of the row that holds the text. */
  readonly restore: Statement<StoredRow>
  /** Removes the row that holds the text, unless it is softly deleted or of another class. */
  readonly delete: Statement<unknown>
  /** Removes the row even if it is softly deleted. */
  readonly deleteAnyway: Statement<unknown>
  /** Finds many rows of one call. */
  readonly findMany: Statement<BatchRow>
  /** Locks many rows of one call. */
  readonly lockMany: Statement<number>
  /** Finds the rows of a few calls, one row each. */
  readonly findTogether: Statement<BatchRow>
}

/** The statements for single rows that change the same columns. */
export interface UpsertStatements {
  readonly upsert: Statement<StoredRow>
  /** Updates without an insert. */
  readonly update: Statement<StoredRow>
}

/** An entity, and its columns that are read. */
export interface EntityColumns {
  readonly dataSource: DataSource
  readonly metadata: EntityMetadata
  /** Columns that `find` would load. */
  readonly select: readonly ColumnMetadata[]
  /** PostGIS columns, by their database names. */
  readonly spatial: ReadonlyMap<string, SpatialColumn>
}

/** An entity with one of its unique texts, and the statements for it. */
export interface EntityText extends EntityColumns {
  readonly declaration: Declaration
  /** Columns that an insert may set, other than scope and text. */
  readonly others: readonly ColumnMetadata[]
  readonly otherTexts: readonly Declaration[]
  /** The properties from which `others` are read. If one is undefined, TypeORM reads the column. */
  readonly properties: readonly (string | undefined)[]
  readonly readyTexts: WeakMap<ReadyTable, ReadyText>
  /** The changes of an upsert, by its options. */
  readonly updates: Map<string, Updates>
}

/** The changes of an upsert to an existing row. */
export interface Updates {
  /** Database names of the columns that it takes over from the values, if these contain them. */
  readonly columns: ReadonlySet<string>
  readonly skipUnchanged: boolean
  /** Columns that it sets to SQL, by their database names. */
  readonly sql: ReadonlyMap<string, SqlOfRows>
  readonly where: SqlOfRows | undefined
  /** Database names of the columns of the given row that this SQL uses. */
  readonly used: ReadonlySet<string>
  /** A string that is equal for equal SQL. */
  readonly sqlKey: string
}

/** An `EntityText` whose table was found ready. The state of the table determines its statements. */
export interface ReadyText extends EntityText {
  readonly ready: ReadyTable
  /** Whether an insert may throw, because a deferrable constraint or a taken name raises an error. */
  readonly mayRaise: boolean
  /** Text columns that the server need not return. */
  readonly echoed: readonly string[]
  readonly rowStatements: Map<string, RowStatements>
  readonly upsertStatements: Map<string, UpsertStatements>
  readonly batchStatements: Map<string, Statement<BatchRow>>
  /** The number of successive single find-or-create calls that found their rows; negative if they created them. */
  readonly streak: { calls: number }
}

/** @param ready the result of `ensureReady` */
export function onTable(entityText: EntityText, ready: ReadyTable): ReadyText {
  const known = entityText.readyTexts.get(ready)
  // The user may have set a parser meanwhile.
  if (known && (known.echoed.length === 0 || readsPlainTexts(entityText.dataSource))) return known
  let echoed: readonly string[] = []
  if (readsPlainTexts(entityText.dataSource)) {
    const selected = new Set(entityText.select.map(({ databaseName }) => databaseName))
    echoed = entityText.declaration.table.text
      .map(({ name }) => name)
      .filter((name) => selected.has(name) && PLAIN_TEXT.test(ready.types.get(name)?.declared ?? ''))
  }
  const readyText: ReadyText = {
    ...entityText,
    ready,
    mayRaise: ready.deferrable || namesOfTable(entityText.metadata).length > 0,
    echoed,
    rowStatements: new Map(),
    upsertStatements: new Map(),
    batchStatements: new Map(),
    streak: { calls: 0 },
  }
  entityText.readyTexts.set(ready, readyText)
  return readyText
}

/** The most sets of columns whose statements are kept. Objects from a user's JSON may have any set of properties. */
const MAX_CACHED = 64

/** Returns the cached value for these columns, or creates it. A full cache does not keep new values. */
export function cached<T>(cache: Map<string, T>, columns: readonly string[], create: () => T): T {
  // No name in Postgres has this character.
  const key = columns.join('\0')
  const known = cache.get(key)
  if (known) return known
  const kept = cache.size < MAX_CACHED
  const created = create()
  if (kept) cache.set(key, created)
  return created
}

/** Texts by the option `by`. If a declaration is added, `declarations` is another list. */
const entityTexts = new WeakMap<
  EntityMetadata,
  { readonly declarations: readonly Declaration[]; readonly texts: Map<string | undefined, EntityText> }
>()

/**
 * @param by name of the declaration; may be left out if the entity has only one
 * @param mark a property that identifies the entity of another copy of this package in place of this copy's
 * @throws DeclarationError if the entity has no such text, if `by` must name one, or if the manager is invalid
 */
export function entityTextOf<Entity extends ObjectLiteral>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  by: string | undefined,
  mark?: symbol,
): EntityText {
  requireManager(manager)
  const dataSource = dataSourceOf(manager)
  const marked =
    mark && !dataSource.hasMetadata(entity)
      ? dataSource.entityMetadatas.find(({ target }) => typeof target === 'function' && Object.hasOwn(target, mark))
      : undefined
  const metadata = marked ?? dataSource.getMetadata(entity)
  const declarations = textsOfTable(metadata)
  const known = entityTexts.get(metadata)
  const texts = known?.declarations === declarations ? known.texts : new Map<string | undefined, EntityText>()
  if (texts !== known?.texts) entityTexts.set(metadata, { declarations, texts })
  const chosen = texts.get(by)
  if (chosen) return chosen
  // One object represents a text, whether `by` names it or not, because calls with equal texts share it.
  const declaration = chooseDeclaration(metadata, by)
  const same = [...texts.values()].find((one) => one.declaration === declaration)
  const made = same ?? makeEntityText(dataSource, metadata, declaration)
  texts.set(by, made)
  return made
}

function chooseDeclaration(metadata: EntityMetadata, by: string | undefined): Declaration {
  const declarations = textsOfEntity(metadata)
  if (declarations.length === 0) {
    throw new DeclarationError(
      `${metadata.name} declares no unique text. Put @UniqueText() on a property of it.${namesHint(metadata)}`,
    )
  }
  const [only] = declarations
  if (by === undefined && only && declarations.length === 1) return only
  const chosen = declarations.find(({ name }) => name === by)
  if (chosen) return chosen
  const names = declarations.map(({ name }) => `"${name}"`).join(', ')
  throw new DeclarationError(
    by === undefined
      ? `${metadata.name} declares several unique texts. Name one with the option "by": ${names}.`
      : `${metadata.name} declares no unique text "${by}". The option "by" takes one of ${names}.${namesHint(metadata)}`,
  )
}

function namesHint(metadata: EntityMetadata): string {
  const names = namesOfEntity(metadata).map(({ name }) => `"${name}"`)
  return names.length === 0
    ? ''
    : ` By ${names.join(' or ')}, which holds a name, findOrCreateHolder() of typeorm-unique-text/names finds a row.`
}

export function entityColumns(dataSource: DataSource, metadata: EntityMetadata): EntityColumns {
  const spatial = metadata.columns.filter(({ type }) => type === 'geometry' || type === 'geography')
  return {
    dataSource,
    metadata,
    select: metadata.columns.filter((column) => column.isSelect && !column.isVirtual && !column.isVirtualProperty),
    spatial: new Map(
      spatial.map(({ databaseName, type, srid, precision }) => [
        databaseName,
        { type: String(type), srid: srid ?? undefined, precision: precision ?? undefined },
      ]),
    ),
  }
}

function makeEntityText(dataSource: DataSource, metadata: EntityMetadata, declaration: Declaration): EntityText {
  const key = new Set([...declaration.scope, ...declaration.text.map(({ column }) => column)])
  const hidden = new Set(textsOfEntity(metadata).flatMap((one) => one.hidden))
  const others = metadata.columns.filter(
    (column) => column.isInsert && column.generatedType === undefined && !key.has(column) && !hidden.has(column),
  )
  return {
    ...entityColumns(dataSource, metadata),
    declaration,
    others,
    properties: others.map(({ embeddedMetadata, referencedColumn, propertyName }) =>
      embeddedMetadata || referencedColumn ? undefined : propertyName,
    ),
    otherTexts: textsOfEntity(metadata).filter((one) => one !== declaration),
    readyTexts: new WeakMap(),
    updates: new Map(),
  }
}

const keysOnly = new WeakMap<EntityText, EntityText>()

/** Returns the same text with only the primary key to read. Calls share one object for each text. */
export function keyOnly(entityText: EntityText): EntityText {
  const known = keysOnly.get(entityText)
  const made = known ?? { ...entityText, select: entityText.metadata.primaryColumns, readyTexts: new WeakMap() }
  if (!known) keysOnly.set(entityText, made)
  return made
}

/** The column types for which equal texts have the same bytes, as `format_type` returns them, and their OIDs. */
const PLAIN_TEXT = /^(?:text|character varying(?:\(\d+\))?)$/
const TEXT = 25
const VARCHAR = 1043

/**
 * Returns whether the driver returns texts as the server sends them: it is `pg`, and no custom parser for texts is set.
 * A caller's text is then the same as the one that the server would return.
 */
function readsPlainTexts({ driver, options }: DataSource): boolean {
  // The part of `pg-types` with which `pg` reads values.
  type PgTypes = { getTypeParser?(oid: number, format: string): unknown }
  const { types } = (driver as { readonly postgres?: { readonly types?: PgTypes } }).postgres ?? {}
  const { extra } = options as { readonly extra?: { readonly types?: unknown } }
  if (typeof types?.getTypeParser !== 'function' || extra?.types !== undefined) return false
  // For a format that does not exist, every type has the default parser.
  const none = types.getTypeParser(0, '')
  return types.getTypeParser(TEXT, 'text') === none && types.getTypeParser(VARCHAR, 'text') === none
}

/** Returns the text with its ready table, at once if the table was found ready before. */
export function readyText(session: Session, entityText: EntityText): ReadyText | Promise<ReadyText> {
  const ready = ensureReady(entityText.declaration, session)
  return ready instanceof Promise ? ready.then((table) => onTable(entityText, table)) : onTable(entityText, ready)
}

const CHANGED = 'a table has got a deferrable constraint, or was distributed, since the first call'

/**
 * @param again whether the table was examined again already
 * @throws the error, unless the call may succeed once the table is examined again
 */
export function requireChanged(session: Session, { declaration }: EntityText, error: unknown, again: boolean): void {
  if (again || !forgetIfChanged(declaration, error)) throw error
  if (session.inTransaction) throw new TransactionAbortedError(error, CHANGED)
}
