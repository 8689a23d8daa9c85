# Makes a system with a git account from a root filesystem that nothing is written into, with two
# keys of hosts. Usage: host.sh ROOT PLACE, in a mount namespace of a test.
set -e
root=$1 place=$2
mkdir "$place/scratch"
mount -t tmpfs scratch "$place/scratch"
cd "$place/scratch"
mkdir upper work root
mount -t overlay -o "lowerdir=$root,upperdir=upper,workdir=work" overlay root
mount --rbind /dev root/dev
chroot root /bin/sh -e <<'INSIDE'
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mkdir -p /run/sshd
useradd --create-home --shell /bin/bash --password '*' git
for name in good other; do
    ssh-keygen -q -t ed25519 -N '' -C "$name" -f /etc/ssh/"$name"
done
cd /home/git
git -c init.defaultBranch=main init -q --bare tiny.git
git -c init.defaultBranch=main init -q first
cd first
echo 42 >answer
git add answer
git -c user.name=x -c user.email=x@example commit -q -m first
git push -q ../tiny.git main
chown -R git:git /home/git
touch /etc/ssh/authorized
INSIDE
cp root/etc/ssh/good.pub root/etc/ssh/other.pub "$place/"
