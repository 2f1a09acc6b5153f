import { CreateDateColumn, Entity, PrimaryGeneratedColumn } from 'typeorm'
import { UniqueText } from 'typeorm-unique-text'
import { collapseWhitespace, url } from 'typeorm-unique-text/normalizers'

@Entity()
export class Bookmark {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) readonly id!: number
  @UniqueText({ normalize: url() }) url!: string
  @UniqueText({ normalize: collapseWhitespace() }) name!: string
  @CreateDateColumn({ type: 'timestamptz' }) readonly createdAt!: Date
}
