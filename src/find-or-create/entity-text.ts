import type { DataSource, EntityManager, EntityMetadata, EntityTarget, ObjectLiteral } from 'typeorm'
import { DeclarationError } from '../errors'
import type { BatchRow, Statement, StoredRow } from '../sql/statements'
import { type ColumnMetadata, dataSourceOf, type Declaration, declarationsOf } from '../typeorm/registry'

/** The statements for single rows that bring one set of columns. */
export interface RowStatements {
  readonly find: Statement<StoredRow>
  readonly findStanding: Statement<StoredRow>
  readonly findOrCreate: Statement<StoredRow>
  readonly createInChain: Statement<StoredRow>
  readonly createInChainOrRaise: Statement<StoredRow>
}

/** The statement for batches of rows that bring one set of columns. */
export interface BatchStatement {
  readonly statement: Statement<BatchRow>
  /** Per parameter: the column is itself an array. */
  readonly isArray: readonly boolean[]
}

/** An entity with one of its unique texts, and the statements that were made for it. */
export interface EntityText {
  readonly dataSource: DataSource
  readonly metadata: EntityMetadata
  readonly declaration: Declaration
  /** Columns that `find` would load. */
  readonly select: readonly ColumnMetadata[]
  /** Columns beside scope and text that an insert may bring. */
  readonly others: readonly ColumnMetadata[]
  readonly rowStatements: Map<string, RowStatements>
  readonly batchStatements: Map<string, BatchStatement>
}

/** Returns what is cached for these columns, creating it on first use. */
export function cached<T>(cache: Map<string, T>, columns: readonly string[], create: () => T): T {
  const key = columns.join('\n')
  const known = cache.get(key)
  if (known) return known
  const created = create()
  cache.set(key, created)
  return created
}

const entityTexts = new WeakMap<Declaration, WeakMap<EntityMetadata, EntityText>>()

/**
 * @param by name of the declaration; may be left out where the entity has one only
 * @throws DeclarationError if the entity has no such text, or several and none is named
 */
export function entityTextOf<Entity extends ObjectLiteral>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  by: string | undefined,
): EntityText {
  const dataSource = dataSourceOf(manager)
  const metadata = dataSource.getMetadata(entity)
  const declaration = chooseDeclaration(metadata, by)
  const known = entityTexts.get(declaration) ?? new WeakMap<EntityMetadata, EntityText>()
  entityTexts.set(declaration, known)
  const entityText = known.get(metadata) ?? makeEntityText(dataSource, metadata, declaration)
  known.set(metadata, entityText)
  return entityText
}

function chooseDeclaration(metadata: EntityMetadata, by: string | undefined): Declaration {
  const declarations = declarationsOf(metadata)
  if (declarations.length === 0) {
    throw new DeclarationError(`${metadata.name} declares no unique text. Put @UniqueText() on a property of it.`)
  }
  const [only] = declarations
  if (by === undefined && only && declarations.length === 1) return only
  const chosen = declarations.find(({ name }) => name === by)
  if (chosen) return chosen
  const names = declarations.map(({ name }) => `"${name}"`).join(', ')
  throw new DeclarationError(
    by === undefined
      ? `${metadata.name} declares several unique texts. Name one with the option "by": ${names}.`
      : `${metadata.name} declares no unique text "${by}". The option "by" takes one of ${names}.`,
  )
}

function makeEntityText(dataSource: DataSource, metadata: EntityMetadata, declaration: Declaration): EntityText {
  const key = new Set([...declaration.scope, ...declaration.text.map(({ column }) => column)])
  const hidden = new Set(declarationsOf(metadata).flatMap((one) => one.hidden))
  return {
    dataSource,
    metadata,
    declaration,
    select: metadata.columns.filter((column) => column.isSelect && !column.isVirtual && !column.isVirtualProperty),
    others: metadata.columns.filter((column) => column.isInsert && !key.has(column) && !hidden.has(column)),
    rowStatements: new Map(),
    batchStatements: new Map(),
  }
}
