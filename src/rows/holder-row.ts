import type { EntityMetadata } from 'typeorm'
import { dataSourceOf, type NameDeclaration } from '../registry/registry'
import {
  findByNameStatement,
  type HolderRow,
  renameStatement,
  type SwappedRow,
  swapNamesStatement,
} from '../sql/name-statements'
import type { HolderTable } from '../sql/name-table'
import type { Statement, WireRow } from '../sql/statements'
import { holderTable } from '../typeorm/names'
import { cached, entityColumns, type EntityColumns } from './entity-text'
import { classFilter } from './updates'

/** An entity whose rows hold names, one of these names, and the statements for such a row. */
export interface HolderEntity extends EntityColumns {
  readonly declaration: NameDeclaration
  readonly table: HolderTable
  /** Database names of the columns that a statement reads of the row. */
  readonly read: readonly string[]
  /** Of the class, and of those that extend it: what `rename` and `swap` take after all else. Empty without inheritance. */
  readonly discriminators: readonly string[]
  /** Parameter: the name. */
  readonly find: Statement<WireRow>
  /**
   * Gives the row other names. Parameters: the names, the primary key, the discriminators.
   *
   * @param columns that hold the names
   */
  readonly rename: (columns: readonly string[]) => Statement<WireRow>
  /** Parameters: the primary keys of two rows, one after the other, the discriminators. */
  readonly swap: Statement<SwappedRow>
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
  const [table, read, only] = [holderTable(metadata), readColumns(columns), classFilter(metadata)]
  const name = declaration.text.column.databaseName
  const row: HolderRow = { holder: table, name, row: { select: read, spatial: columns.spatial }, only }
  const changes = {
    version: metadata.versionColumn?.databaseName,
    updated: metadata.updateDateColumn?.databaseName,
  }
  const renames = new Map<string, Statement<WireRow>>()
  return {
    ...columns,
    declaration,
    table,
    read,
    discriminators: only?.values ?? [],
    find: findByNameStatement(row),
    rename: (names) => cached(renames, names, () => renameStatement(row, names, changes)),
    swap: swapNamesStatement(row, changes),
  }
}

/** Those that `find` would load; then the discriminator of single table inheritance, where that is not among them. */
function readColumns({ metadata, select }: EntityColumns): string[] {
  const names = select.map(({ databaseName }) => databaseName)
  const discriminator = metadata.discriminatorColumn?.databaseName
  return discriminator === undefined || names.includes(discriminator) ? names : [...names, discriminator]
}
