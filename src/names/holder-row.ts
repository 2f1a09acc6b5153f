import type { EntityManager, EntityMetadata, EntityTarget, ObjectLiteral } from 'typeorm'
import { DeclarationError } from '../errors'
import type { Session } from '../connection/session'
import { requireManager } from '../rows/call-arguments'
import { entityColumns, type EntityColumns } from '../rows/entity-text'
import { hydrate } from '../rows/hydrate'
import { classFilter } from '../rows/updates'
import type { ChangeColumns, HolderRow } from '../sql/name-statements'
import type { WireRow } from '../sql/statements'
import { holderTable } from '../typeorm/names'
import { dataSourceOf, type NameDeclaration, namesOfEntity } from '../registry/registry'

/** An entity whose rows hold names, and one of these names. */
export interface HolderEntity extends EntityColumns {
  readonly declaration: NameDeclaration
  /** What a statement reads of the row. */
  readonly shape: HolderRow
  /** What every change of the row changes. */
  readonly changes: ChangeColumns
}

/**
 * @param by the property; may be left out where the entity has one name only
 * @throws DeclarationError if the entity has no such name, or has several and `by` names none; also if `manager` is not
 * an EntityManager
 */
export function holderEntityOf<Entity extends ObjectLiteral>(
  manager: EntityManager,
  entity: EntityTarget<Entity>,
  by: string | undefined,
): HolderEntity {
  requireManager(manager)
  const dataSource = dataSourceOf(manager)
  const metadata = dataSource.getMetadata(entity)
  return holderEntity(metadata, chooseName(metadata, by))
}

const holders = new WeakMap<NameDeclaration, WeakMap<EntityMetadata, HolderEntity>>()

/** Describes the entity whose rows hold the names of a declaration. Made once and kept. */
export function holderEntity(metadata: EntityMetadata, declaration: NameDeclaration): HolderEntity {
  const known = holders.get(declaration) ?? new WeakMap<EntityMetadata, HolderEntity>()
  holders.set(declaration, known)
  const holder = known.get(metadata) ?? makeHolderEntity(metadata, declaration)
  known.set(metadata, holder)
  return holder
}

function makeHolderEntity(metadata: EntityMetadata, declaration: NameDeclaration): HolderEntity {
  const columns = entityColumns(dataSourceOf(metadata), metadata)
  return {
    ...columns,
    declaration,
    shape: {
      holder: holderTable(metadata),
      name: declaration.text.column.databaseName,
      row: { select: readColumns(columns), spatial: columns.spatial },
      only: classFilter(metadata),
    },
    changes: {
      version: metadata.versionColumn?.databaseName,
      updated: metadata.updateDateColumn?.databaseName,
    },
  }
}

/** Those that `find` would load; then the discriminator of single table inheritance, where that is not among them. */
function readColumns({ metadata, select }: EntityColumns): string[] {
  const names = select.map(({ databaseName }) => databaseName)
  const discriminator = metadata.discriminatorColumn?.databaseName
  return discriminator === undefined || names.includes(discriminator) ? names : [...names, discriminator]
}

/** An entity as `find` would give it, without relations. */
export const toEntity = (holder: HolderEntity, session: Session, columns: WireRow): ObjectLiteral =>
  hydrate(holder, session, { columns, hashNumber: 0 })

function chooseName(metadata: EntityMetadata, by: string | undefined): NameDeclaration {
  const declarations = namesOfEntity(metadata)
  const [only, another] = declarations
  if (!only) throw new DeclarationError(`${metadata.name} declares no name. Put @UniqueName() on a property of it.`)
  if (by === undefined && !another) return only
  const chosen = declarations.find(({ name }) => name === by)
  if (chosen) return chosen
  const list = declarations.map(({ name }) => `"${name}"`).join(', ')
  throw new DeclarationError(
    by === undefined
      ? `${metadata.name} declares several names. Name one with the option "by": ${list}.`
      : `${metadata.name} declares no name "${by}". The option "by" takes one of ${list}.`,
  )
}
