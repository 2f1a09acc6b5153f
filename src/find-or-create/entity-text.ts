import type { DataSource, EntityManager, EntityMetadata, EntityTarget, ObjectLiteral } from 'typeorm'
import { DeclarationError } from '../errors'
import type { Statement } from '../sql/statements'
import { type ColumnMetadata, dataSourceOf, type Declaration, declarationsOf } from '../typeorm/registry'

/** What one set of columns needs. */
export interface Statements {
  readonly find: Statement
  readonly findStanding: Statement
  /** Parameters that `find` takes: scope, text and hash. */
  readonly valueCount: number
  readonly findOrCreate: Statement
  readonly inChain: Statement
  readonly inChainOrRaise: Statement
}

export interface ManyStatement {
  readonly statement: Statement
  /** Per parameter: the column is itself an array. */
  readonly isArray: readonly boolean[]
}

/** Which entity, and which of its texts. */
export interface EntityText {
  readonly dataSource: DataSource
  readonly metadata: EntityMetadata
  readonly declaration: Declaration
  /** Columns that `find` would load. */
  readonly select: readonly ColumnMetadata[]
  /** Columns beside scope and text that an insert may bring. */
  readonly others: readonly ColumnMetadata[]
  /** Made once for each set of columns that an insert brings. */
  readonly statements: Map<string, Statements>
  readonly manyStatements: Map<string, ManyStatement>
}

/** What was made for these columns, or makes it. */
export function remember<T>(known: Map<string, T>, columns: readonly string[], make: () => T): T {
  const key = columns.join('\n')
  const found = known.get(key)
  if (found) return found
  const made = make()
  known.set(key, made)
  return made
}

type Cache = WeakMap<Declaration, WeakMap<EntityMetadata, EntityText>>
const cache: Cache = new WeakMap()

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
  const declaration = choose(metadata, by)
  let targets = cache.get(declaration)
  if (!targets) cache.set(declaration, (targets = new WeakMap()))
  let target = targets.get(metadata)
  if (!target) targets.set(metadata, (target = makeEntityText(dataSource, metadata, declaration)))
  return target
}

function choose(metadata: EntityMetadata, by: string | undefined): Declaration {
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
      ? `${metadata.name} declares several unique texts. Say by which: the option "by" takes one of ${names}.`
      : `${metadata.name} declares no unique text "${by}". The option "by" takes one of ${names}.`,
  )
}

function makeEntityText(dataSource: DataSource, metadata: EntityMetadata, declaration: Declaration): EntityText {
  const own = new Set([...declaration.scope, ...declaration.text.map(({ column }) => column), ...declaration.hidden])
  const hidden = new Set(declarationsOf(metadata).flatMap((one) => one.hidden))
  return {
    dataSource,
    metadata,
    declaration,
    select: metadata.columns.filter((column) => column.isSelect && !column.isVirtual && !column.isVirtualProperty),
    others: metadata.columns.filter((column) => column.isInsert && !own.has(column) && !hidden.has(column)),
    statements: new Map(),
    manyStatements: new Map(),
  }
}
